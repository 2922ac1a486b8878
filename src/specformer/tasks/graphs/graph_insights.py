r"""Arrays for the report on a model of many graphs: filters, errors, contributions of nodes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from specformer.baselines.graphs import FragmentForest
from specformer.datasets import GraphStore
from specformer.graphs import GraphSet
from specformer.nn import GraphSpecformer
from specformer.nn.condensation import band_of, condensed_attention
from specformer.nn.filter import SpectralFilter
from specformer.spectrum import ManySpectra, decompose_many
from specformer.spectrum.eigenpairs import distinct
from specformer.spectrum.many.spectra import Matrix
from specformer.tasks.graphs.graph_models import packed_for
from specformer.tasks.graphs.graph_recipe import GraphRecipe
from specformer.training.evaluation.graph_metrics import predictions
from specformer.training.evaluation.graphs import GraphEvaluation, Placed

#: The most test graphs to look at, and how many of the best and of the worst to draw.
_SEEN, _DRAWN = 600, 6
#: Larger graphs are not drawn.
_LARGEST = 80
#: Pairs of nodes in a batch of graphs that each lack one node.
_PAIRS = 200_000
_BATCH = 64
#: Bins of sizes.
_BINS = 6
#: Graphs whose eigenvalues are drawn.
_FILTERED = 64


@torch.no_grad()
def graph_insights(
    graphs: GraphSet,
    tested: np.ndarray,
    model: nn.Module,
    recipe: GraphRecipe,
    device: torch.device,
) -> dict[str, np.ndarray]:
    """Errors by size, and the best and worst of some test graphs with their nodes' contributions.

    Errors are those of the first target: absolute, or one minus the probability of the true class.
    ``tested`` has the numbers of the test graphs.
    """
    assert graphs.y is not None
    known = tested[np.isfinite(graphs.y[tested, 0])][:_SEEN]
    if not len(known):
        return {}
    part = graphs.subset(known)
    assert part.y is not None
    spectra = decompose_many(part, matrix=recipe.matrix, device=device)
    store = packed_for(model, part, spectra).placed(device)
    placed = Placed(model.to(device).eval(), recipe.precision, device)
    outputs = ordered_outputs(placed, store)
    told, measured = predictions(recipe.loss, outputs).numpy(), part.y[:, 0]
    if recipe.loss == "ce":
        right = told[np.arange(len(measured)), measured.astype(np.int64)]
        predicted, errors = told.argmax(axis=1), 1 - right
    else:
        predicted, errors = told[:, 0], np.abs(told[:, 0] - measured)
    drawn, worst = _extremes(errors, part.num_nodes)
    names = part.ids if part.ids is not None else [str(number) for number in known]
    found = {
        "by_size": _by_size(part.num_nodes, errors),
        "drawn/names": np.array([names[graph] for graph in drawn]),
        "drawn/smiles": np.array([part.smiles[graph] if part.smiles else "" for graph in drawn]),
        "drawn/told": np.column_stack([part.y[drawn, 0], predicted[drawn]]),
        "drawn/worst": worst,
    }
    if not len(drawn) or isinstance(model, FragmentForest):  # a forest has no atoms
        return found
    outcome = outputs.argmax(dim=1) if recipe.loss == "ce" else torch.zeros(len(part)).long()
    chosen = part.subset(drawn)
    return found | {
        "drawn/sizes": chosen.num_nodes,
        "drawn/edges": chosen.edge_index,
        "drawn/num_edges": chosen.num_edges,
        "drawn/contributions": np.concatenate(
            [contributions(placed, store, int(graph), int(outcome[graph])) for graph in drawn]
        ),
    }


def contributions(placed: Placed, store: GraphStore, graph: int, output: int = 0) -> np.ndarray:
    r"""How much each node adds to a graph's output ``[n]``.

    By occlusion: :math:`f(G) - f(G_i)`, where in :math:`G_i` node i's embedding is the mean over
    nodes of the store, so that the model knows only the node's place.
    """
    atoms = placed.model.get_submodule("atoms")
    middle: Tensor = atoms(store.exact(np.arange(min(len(store), _BATCH)))).mean(dim=0)
    size = int(store.host_sizes[graph])
    whole = placed(store.exact([graph]))[0, output]
    parts = []
    for nodes in torch.arange(size).split(max(1, _PAIRS // size**2)):

        def occlude(_: Any, __: Any, embedded: Tensor, nodes: Tensor = nodes) -> Tensor:
            changed = embedded.clone()
            changed[torch.arange(len(nodes)) * size + nodes] = middle.to(embedded)
            return changed

        hook = atoms.register_forward_hook(occlude)
        try:
            without = placed(store.exact([graph] * len(nodes)))[:, output]
        finally:
            hook.remove()
        parts.append(whole - without)
    return torch.cat(parts).float().cpu().numpy()


def ordered_outputs(placed: Placed, store: GraphStore) -> Tensor:
    """A model's outputs for all graphs, in their order."""
    evaluation = GraphEvaluation(placed, store, np.arange(len(store)), _BATCH)
    outputs = evaluation.outputs()
    ordered = torch.empty_like(outputs)
    ordered[evaluation.order.cpu()] = outputs
    return ordered


def _extremes(errors: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Graphs that can be drawn with the smallest and the largest errors, and which are which."""
    order = np.argsort(errors, kind="stable")
    order = order[(sizes[order] <= _LARGEST) & (sizes[order] > 1) & np.isfinite(errors[order])]
    count = min(_DRAWN, len(order) // 2)
    worst = order[::-1][:count]
    return np.concatenate([worst, order[:count]]), np.repeat([True, False], count)


def _by_size(sizes: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Smallest and largest size, count and mean error of graphs of about the same size.

    Shapes: ``[bins, 4]``; a bin holds about as many graphs as another.
    """
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, _BINS + 1)).round())
    place = np.clip(np.searchsorted(edges, sizes, side="right") - 1, 0, max(0, len(edges) - 2))
    return np.array(
        [
            [sizes[own].min(), sizes[own].max(), own.sum(), errors[own].mean()]
            for number in np.unique(place)
            if (own := place == number).any()
        ]
    )


@torch.no_grad()
def filter_pictures(
    model: nn.Module, spectra: ManySpectra, graphs: np.ndarray, matrix: Matrix
) -> dict[str, np.ndarray]:
    r"""The first filter on the first of these graphs: frequencies, responses, condensed attention.

    Frequencies are the Laplacian's eigenvalues; those of the adjacency matrix are turned into
    :math:`1 - \mu`, so that small ones belong to smooth signals there too. Attention is condensed
    over the eigenvalues of all graphs together. Nothing for a model that has no filters.
    """
    if not isinstance(model, GraphSpecformer):
        return {}
    model.eval()
    filt = cast(SpectralFilter, model.filters[0])
    like = next(filt.parameters())
    frequencies, responses = [], []
    shares, mass = like.new_zeros(()), like.new_zeros(3)
    for graph in graphs[:_FILTERED]:
        values = spectra[int(graph)][0].to(like)
        tokens = distinct(values).tokens
        frequencies.append(_frequencies(values, matrix))
        responses.append(filt(values))
        own = _frequencies(tokens.values, matrix)
        condensed = condensed_attention(filt.encoder, tokens, frequencies=own)
        in_bands = nn.functional.one_hot(band_of(own), 3).to(like).mT @ tokens.weights
        shares, mass = shares + in_bands[:, None] * condensed, mass + in_bands
    return {
        "eigenvalues": torch.cat(frequencies).cpu().numpy(),
        "response": torch.cat(responses).cpu().numpy(),
        "attention": (shares / mass.clamp_min(1.0)[:, None]).cpu().numpy(),
    }


def _frequencies(values: Tensor, matrix: Matrix) -> Tensor:
    return values if matrix == "laplacian" else (1 - values).clamp(0, 2)
