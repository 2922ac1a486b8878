r"""Arrays for the report on a model of one graph: what it learned, and where it fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.nn.condensation import attention_matrix, first_attention
from specformer.nn.conv.composition import steps
from specformer.nn.filter import SpectralFilter
from specformer.spectrum import Spectrum
from specformer.training.engine.distributed import Share
from specformer.training.evaluation.graph_metrics import Scale
from specformer.training.evaluation.node_objectives import NodeTask

#: Bins of energy over the spectrum, and its range.
_BINS, _RANGE = 64, (0.0, 2.0)
#: Runs whose filters are kept, and eigenvalues they are kept at.
_RUNS, _KEPT = 10, 400
#: Eigenvalues whose attention is kept.
_SEEN = 80
#: Nodes whose impulse responses are kept, and heads.
_CENTRES, _HEADS = 4, 4


@torch.no_grad()
def node_insights(
    graph: Graph,
    task: NodeTask,
    outputs: Tensor,
    models: Sequence[nn.Module],
    operator: object,
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Arrays by name, and the first run's worst-predicted test nodes, where they have classes.

    ``models`` has one per run; their ``outputs`` ``[runs, m, channels]`` are those for this
    worker's nodes.
    """
    arrays: dict[str, np.ndarray] = {}
    worst: list[dict[str, Any]] = []
    if task.loss == "ce":
        scores = task.share.whole(outputs)
        chances, tested = scores.softmax(dim=-1).cpu().numpy(), task.gathered().test.cpu().numpy()
        worst = worst_nodes(graph, chances[0], tested[0])
        nodes = drawn_part(graph, [each["node"] for each in worst])
        arrays |= failures(graph, chances, tested) | drawing(graph, nodes, chances[0], tested[0])
    if not isinstance(operator, Spectrum):
        return arrays, worst
    first = models[0]
    assert isinstance(first, Specformer)
    arrays |= _filters(models, operator) | _attention(first, operator)
    x = task.x[0] if isinstance(task.x, Tensor) and task.x.dim() == 3 else task.x
    arrays["energy"] = _energies(first, x, graph, operator, task.share)
    if task.loss == "ce":
        hub = nodes[np.diff(graph.adjacency.indptr)[nodes].argmax()]  # has the most edges
        named = dict.fromkeys([int(hub), *(each["node"] for each in worst)])
        centres = np.array([node for node in named if node in nodes][:_CENTRES])
        share = replace(task.share, count=graph.num_nodes)
        arrays |= _impulses(first, operator, nodes, centres, share)
    return arrays, worst


def _filters(models: Sequence[nn.Module], spectrum: Spectrum) -> dict[str, np.ndarray]:
    """New eigenvalues of every run, filter and head, ``[runs, filters, p, heads]``, at ``[p]``."""
    values = spectrum.eigenvalues
    index = torch.linspace(0, len(values) - 1, min(_KEPT, len(values)), device=values.device)
    index = index.round().long().unique()
    found = []
    for model in models[:_RUNS]:
        assert isinstance(model, Specformer)
        every = model.to(spectrum.device).responses(spectrum)
        found.append(torch.stack([response[index] for response in every]))
    return {
        "filters": torch.stack(found).cpu().numpy(),
        "filters_at": values[index].cpu().numpy(),
    }


def _attention(model: Specformer, spectrum: Spectrum) -> dict[str, np.ndarray]:
    """The first block's attention between some eigenvalues ``[m]``, ``[heads, m, m]``.

    Attention to an eigenvalue that is left out counts for the nearest one that is not.
    """
    tokens = spectrum.distinct.tokens
    encoder = cast(SpectralFilter, model.filters[0]).encoder
    found = first_attention(encoder, tokens)
    if found is None:
        return {}
    attention, hidden = found
    count = len(tokens.values)
    index = torch.linspace(0, count - 1, min(_SEEN, count), device=spectrum.device).round().long()
    rows = attention_matrix(attention, hidden[index], hidden, tokens.weights)
    ranks = torch.arange(count, device=spectrum.device)
    nearest = torch.bucketize(ranks, (index[1:] + index[:-1]) / 2)
    summed = rows.new_zeros(*rows.shape[:-1], len(index)).index_add(-1, nearest, rows)
    return {
        "attention_full": summed.float().cpu().numpy(),
        "attention_at": tokens.values[index].cpu().numpy(),
    }


def _energies(
    model: Specformer, x: Any, graph: Graph, spectrum: Spectrum, share: Share
) -> np.ndarray:
    r"""Shares of energy :math:`\lVert U^\top X \rVert^2` by eigenvalue, ``[bins, 3]``.

    Of the signals before the convolutions, of those after them, and of the labels.
    """
    assert graph.y is not None
    before = after = model.before(x)
    for conv, response in steps(model.convs, model.responses(spectrum), spectrum):
        after = conv(after, response, spectrum)
    y = torch.as_tensor(graph.y)
    if graph.num_targets:
        labels = Scale.of(y).standardised(y).nan_to_num()
    else:  # classes as columns of 0 and 1, without their means
        known = y >= 0
        labels = nn.functional.one_hot(y.clamp_min(0), graph.num_classes).float()
        labels = torch.where(known[:, None], labels - labels[known].mean(dim=0), 0.0)
    values = spectrum.eigenvalues.cpu().numpy()
    shares = []
    for signal in (before, after, labels.to(before)[share.rows]):
        energy = spectrum.gft(signal).double().square().sum(dim=-1).cpu().numpy()
        binned, _ = np.histogram(values.clip(*_RANGE), _BINS, _RANGE, weights=energy)
        shares.append(binned / max(float(energy.sum()), 1e-30))
    return np.column_stack(shares)


def _impulses(
    model: Specformer, spectrum: Spectrum, nodes: np.ndarray, centres: np.ndarray, share: Share
) -> dict[str, np.ndarray]:
    r"""The first filter's :math:`U\,\mathrm{diag}(g_m)\,U^\top \delta_i` on a drawing's nodes.

    Shapes: ``[centres, heads, drawn]``.
    """
    response = model.responses(spectrum)[0][:, :_HEADS]
    impulses = response.new_zeros(share.count, len(centres))
    impulses[torch.as_tensor(centres), torch.arange(len(centres))] = 1.0
    spread = share.whole(spectrum.filter_bank(impulses[share.rows], response), dim=0)
    spread = spread[torch.as_tensor(nodes)]
    return {
        "drawn/centres": centres,
        "drawn/spread": spread.permute(2, 1, 0).float().cpu().numpy(),
    }


#: Bins of confidence, and of the share of neighbours of a node's class.
_CONFIDENCES, _SHARES = np.linspace(0.0, 1.0, 11), np.linspace(0.0, 1.0, 6)
#: Bins of degrees: 0, 1, 2, 3, 4 to 7, 8 to 15, ...
_DEGREES = np.array([0, 1, 2, 3, *2 ** np.arange(2, 32)], dtype=float)
#: Nodes in a drawing, and neighbours by which one of them reaches others.
_PART, _REACHED = 320, 24
#: Worst-predicted nodes that are listed.
_WORST = 12


def failures(graph: Graph, chances: np.ndarray, tested: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy of all runs' test nodes by confidence, by degree and by like neighbours.

    ``chances`` are class probabilities ``[runs, n, classes]``, ``tested`` the test nodes
    ``[runs, n]``. Tables have a row per bin that holds any node: its lower and upper end, its
    nodes, and how many of them were right; ``calibration`` also the sum of their confidences.
    """
    assert graph.y is not None
    run, node = np.nonzero(tested)
    right = chances.argmax(axis=-1)[run, node] == graph.y[node]
    confidence = chances.max(axis=-1)[run, node]
    degrees = np.diff(graph.adjacency.indptr)
    rows, columns = graph.adjacency.nonzero()
    known = (graph.y[rows] >= 0) & (graph.y[columns] >= 0) & (rows != columns)
    rows, columns = rows[known], columns[known]
    labelled = np.bincount(rows, minlength=graph.num_nodes)
    same = np.bincount(rows[graph.y[rows] == graph.y[columns]], minlength=graph.num_nodes)
    # The share of each node's labelled neighbours with its class; NaN without any.
    alike = np.divide(same, labelled, out=np.full(len(same), np.nan), where=labelled > 0)
    return {
        "calibration": _binned(confidence, right, _CONFIDENCES, confidence),
        "by_degree": _binned(degrees[node].astype(float), right, _DEGREES),
        "by_homophily": _binned(alike[node], right, _SHARES),
    }


def _binned(
    values: np.ndarray, right: np.ndarray, edges: np.ndarray, *sums: np.ndarray
) -> np.ndarray:
    """The ends, the count, the number of right ones and more sums of each bin with any value."""
    known = np.isfinite(values)
    place = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, len(edges) - 2)
    counted = (np.bincount(place, of[known].astype(float), len(edges) - 1) for of in (right, *sums))
    count = np.bincount(place, minlength=len(edges) - 1)
    return np.column_stack([edges[:-1], edges[1:], count, *counted])[count > 0]


def worst_nodes(graph: Graph, chances: np.ndarray, tested: np.ndarray) -> list[dict[str, Any]]:
    """One run's wrongly predicted test nodes ``[n]``, the least probable label first.

    ``chances`` are class probabilities ``[n, classes]``.
    """
    assert graph.y is not None
    names = graph.class_names or [str(number) for number in range(graph.num_classes)]
    nodes = np.flatnonzero(tested)
    nodes = nodes[chances[nodes].argmax(axis=1) != graph.y[nodes]]
    own, found = chances[nodes, graph.y[nodes]], []
    for node in nodes[np.argsort(own, kind="stable")][:_WORST]:
        near = graph.y[_neighbours(graph.adjacency, node)]
        classes, counts = np.unique(near[near >= 0], return_counts=True)
        order = np.argsort(-counts, kind="stable")  # the most frequent first
        found.append(
            {
                "node": int(node),
                "name": graph.node_ids[node] if graph.node_ids else str(node),
                "class": names[graph.y[node]],
                "predicted": names[int(chances[node].argmax())],
                "chance": float(chances[node, graph.y[node]]),
                "neighbours": {names[classes[each]]: int(counts[each]) for each in order},
            }
        )
    return found


def _neighbours(adjacency: sp.csr_array, node: int) -> np.ndarray:
    found = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
    return found[found != node]


def drawn_part(graph: Graph, starts: Iterable[int]) -> np.ndarray:
    """A few hundred nodes around these, nearest first: the whole graph if it is no larger.

    Of a node's very many neighbours a fixed random part is followed.
    """
    if graph.num_nodes <= _PART:
        return np.arange(graph.num_nodes)
    draw = np.random.default_rng(0)
    found: dict[int, None] = {}
    for start in (*starts, *draw.permutation(graph.num_nodes).tolist()):
        waiting = deque([int(start)])
        while waiting and len(found) < _PART:
            node = waiting.popleft()
            if node not in found:
                found[node] = None
                near = _neighbours(graph.adjacency, node)
                if len(near) > _REACHED:
                    near = draw.choice(near, _REACHED, replace=False)
                waiting.extend(near.tolist())
        if len(found) == _PART:
            break
    return np.array(sorted(found))


def drawing(
    graph: Graph, nodes: np.ndarray, chances: np.ndarray, tested: np.ndarray
) -> dict[str, np.ndarray]:
    """A part of a graph as reports draw it: nodes, edges, labels, and what one run predicts."""
    assert graph.y is not None
    part = sp.coo_array(graph.adjacency[nodes][:, nodes])
    once = part.row < part.col
    return {
        "drawn/nodes": nodes,
        "drawn/names": np.array(
            [graph.node_ids[node] for node in nodes] if graph.node_ids else nodes, dtype=str
        ),
        "drawn/edges": np.column_stack([part.row[once], part.col[once]]).astype(np.int32),
        "drawn/labels": graph.y[nodes],
        "drawn/tested": tested[nodes],
        "drawn/chances": chances[nodes].astype(np.float32),
    }
