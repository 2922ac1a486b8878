r"""The paper's figures, each from a run's result and arrays, or from the model alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from specformer.datasets import FILTERS, csbm
from specformer.errors import RunError
from specformer.nn.filter import SpectralFilter
from specformer.nn.filter.encoder import EigenvalueEncoding
from specformer.nn.inspection import attention_matrix
from specformer.paper.table1 import table1
from specformer.paper.table2 import table2
from specformer.reports import plots
from specformer.reports.plots.model_diagram import model_diagram
from specformer.reports.variants import Arrays, Entry, arrays_by
from specformer.spectrum import decompose
from specformer.tasks.job import Request
from specformer.tasks.resolve import resolve
from specformer.tasks.train import train
from specformer.tasks.workplace import Workplace

#: What a run gives: its result, and the arrays that reports draw.
Ran = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]
Rows = list[list[Figure]]


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures.

    Args:
        number: the paper's.
        told: what it shows.
        draw: rows of pictures of a run; of nothing, where no run is needed.
        run: a fresh run, from settings to change, a place and a seed; None where none is needed.
        kind: what such a run's rows are called in its result.
    """

    number: int
    told: str
    draw: Callable[[Mapping[str, Any], Arrays], Rows]
    run: Callable[[Sequence[str], Workplace, int], Ran] | None = None
    kind: str = ""

    def drawn(self, result: Mapping[str, Any], arrays: Arrays) -> Rows:
        """Its pictures; refused where a run does not hold what they show."""
        rows = [row for row in self.draw(result, arrays) if row]
        if not rows:
            raise RunError(f"The run holds nothing that figure {self.number} shows: {self.told}.")
        return rows


def _model(_: Mapping[str, Any], __: Arrays) -> Rows:
    """The steps of an untrained model on one small graph."""
    graph = csbm(0.4, num_nodes=20, degree=5.0, seed=3)
    spectrum = decompose(graph)
    torch.manual_seed(1)
    learned = SpectralFilter(hidden_channels=16, num_heads=4, epsilon=10.0).eval()
    encoder, tokens = learned.encoder, spectrum.distinct.tokens
    with torch.no_grad():
        response = learned(spectrum.eigenvalues)
        encoded = encoder.encoding(spectrum.eigenvalues)
        block: Any = encoder.blocks[0]
        hidden = block.attention_norm(encoder.embedding(encoder.encoding(tokens.values)))
        attention = attention_matrix(block.attention, hidden, hidden, tokens.weights).mean(dim=0)
        u = spectrum.eigenvectors
        basis = u @ torch.diag(response[:, 0]) @ u.T
        signal = spectrum.filter(torch.randn(len(u)), response[:, 0])
    steps = {
        "eigenvalues": spectrum.eigenvalues,
        "encoding": encoded[:, 1:],
        "attention": attention,
        "responses": response,
        "basis": basis,
        "signal": signal,
    }
    edges = np.argwhere(np.triu(graph.adjacency.toarray(), k=1))
    return [[model_diagram({name: step.numpy() for name, step in steps.items()}, edges)]]


def _encodings(_: Mapping[str, Any], __: Arrays) -> Rows:
    values = torch.linspace(0, 2, 50)
    waves = {
        float(epsilon): EigenvalueEncoding(64, epsilon)(values)[:, 1:].numpy()
        for epsilon in (1, 10, 100)
    }
    return [[plots.encoding_plot(values.numpy(), waves)]]


def _filters(result: Mapping[str, Any], arrays: Arrays) -> Rows:
    """Learned filters over the true ones."""
    eigenvalues = arrays.get("filters/eigenvalues")
    entries: Sequence[Entry] = result.get("filters") or ()
    if eigenvalues is None:
        return []
    figures = [
        plots.filter_plot(
            eigenvalues,
            arrays.get(f"filters/{name}/target"),
            responses,
            counts=arrays.get("filters/counts"),
            title=name,
            formula=str(group[0].get("formula") or ""),
        )
        for name, group, responses in arrays_by(entries, arrays, "filters", "response")
        if responses
    ]
    return [figures[start : start + 3] for start in range(0, len(figures), 3)]


def _dependencies(result: Mapping[str, Any], arrays: Arrays) -> Rows:
    """Condensed attention, one picture per filter."""
    entries: Sequence[Entry] = result.get("filters") or ()
    return [[_heat(matrix, name) for name, matrix in _attention(entries, arrays, "filters")]]


def _graphs(result: Mapping[str, Any], arrays: Arrays) -> Rows:
    """Condensed attention and learned filters, one row per data set."""
    entries: Sequence[Entry] = result.get("nodes") or ()
    attention = dict(_attention(entries, arrays, "nodes"))
    return [
        [_heat(attention[name], name), plots.heads_plot(values, response, title=name)]
        for name, values, response in _responses(entries, arrays, "nodes")
        if name in attention
    ]


def _molecules(result: Mapping[str, Any], arrays: Arrays) -> Rows:
    """Attention and filters of two heads."""
    entries: Sequence[Entry] = result.get("molecules") or ()
    rows: Rows = []
    for name, _, found in arrays_by(entries, arrays, "molecules", "attention"):
        responses = {who: part for who, *part in _responses(entries, arrays, "molecules")}
        for matrices in found.values():
            if not matrices.size or name not in responses:
                continue
            values, response = responses[name]
            for head in range(min(2, len(matrices), response.shape[1])):
                title = f"{name}, basis {head + 1}"
                line = plots.heads_plot(
                    values, response[:, [head]], points=True, title=title, legend=False
                )
                rows.append([_heat(matrices[head], title), line])
    return rows


def _images(result: Mapping[str, Any], arrays: Arrays) -> Rows:
    """Images raw, filtered truly, and as models filter them."""
    raw, titles = arrays.get("filters/raw"), arrays.get("filters/titles")
    entries: Sequence[Entry] = result.get("filters") or ()
    rows: Rows = []
    for name, _, learned in arrays_by(entries, arrays, "filters", "image"):
        true = arrays.get(f"filters/{name}/true")
        if true is None or raw is None or not learned:
            continue
        for index, image in enumerate(true):
            title = name if titles is None else f"{name}, {titles[index]}"
            own = {model: images[index] for model, images in learned.items()}
            rows.append([plots.image_grid(raw[index], image, own, title=title)])
    return rows


def _heat(matrix: np.ndarray, title: str) -> Figure:
    return plots.attention_heatmap(matrix, title=title)


def _attention(
    entries: Sequence[Entry], arrays: Arrays, kind: str
) -> Iterator[tuple[str, np.ndarray]]:
    """The first Specformer's condensed attention, the mean of its heads."""
    for name, _, found in arrays_by(entries, arrays, kind, "attention"):
        for condensed in list(found.values())[:1]:
            if condensed.size:
                yield name, condensed.reshape(-1, *condensed.shape[-2:]).mean(axis=0)


def _responses(
    entries: Sequence[Entry], arrays: Arrays, kind: str
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Eigenvalues and the first Specformer's responses there."""
    both = (arrays_by(entries, arrays, kind, what) for what in ("eigenvalues", "response"))
    for (name, _, values), (_, _, responses) in zip(*both, strict=True):
        for style in list(responses)[:1]:
            if style in values:
                yield name, values[style], responses[style]


def _table1(**asked: Any) -> Callable[[Sequence[str], Workplace, int], Ran]:
    def run(changes: Sequence[str], place: Workplace, seed: int) -> Ran:
        return table1(
            **{"images": 1, "recipes": ["paper"], **asked},
            assignments=changes,
            place=place,
            seed=seed,
        )

    return run


def _table2(changes: Sequence[str], place: Workplace, seed: int) -> Ran:
    return table2(
        datasets=["citeseer", "squirrel"],
        models=["specformer"],
        recipes=["paper"],
        runs=1,
        assignments=changes,
        place=place,
        seed=seed,
    )


def _zinc(changes: Sequence[str], place: Workplace, seed: int) -> Ran:
    request = Request("zinc", model="specformer", recipe="paper", changes=tuple(changes))
    trained = train(resolve(request, runs=1, seed=seed), place)
    return trained.result, trained.outcome.arrays


#: The paper's figures by the name that the command line takes.
FIGURES = {
    "model": PaperFigure(1, "the model, every step computed on one small graph", _model),
    "filters": PaperFigure(
        2,
        "filters that GPR-GNN, BernNet and Specformer learned, over the true ones",
        _filters,
        _table1(
            filters=["high-pass", "band-rejection", "comb"],
            models=["gprgnn", "bernnet", "specformer"],
        ),
        "filters",
    ),
    "dependencies": PaperFigure(
        3,
        "which frequencies attention ties together, for five filters",
        _dependencies,
        _table1(filters=list(FILTERS), models=["specformer"]),
        "filters",
    ),
    "graphs": PaperFigure(
        4, "the same, and the learned filters, on Citeseer and Squirrel", _graphs, _table2, "nodes"
    ),
    "molecules": PaperFigure(5, "the same of two bases on ZINC", _molecules, _zinc, "molecules"),
    "encodings": PaperFigure(6, "encodings of eigenvalues for ε = 1, 10 and 100", _encodings),
    "images": PaperFigure(
        7,
        "images 19 and 28 after the comb filter: raw, true, GPR-GNN and Specformer",
        _images,
        _table1(images=[19, 28], filters=["comb"], models=["gprgnn", "specformer"]),
        "filters",
    ),
}
