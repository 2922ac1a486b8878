r"""The paper's figures, drawn from a run's result and arrays, or from an untrained model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specformer.datasets import csbm
from specformer.errors import RunError
from specformer.nn.condensation import attention_matrix, first_attention
from specformer.nn.filter import EigenvalueEncoding, SpectralFilter
from specformer.paper.tables import table1, table2
from specformer.reports.looks import HEAT, INK, MUTED, head_looks
from specformer.reports.plots import spectral_plots
from specformer.reports.plots.drawing import panels, styled
from specformer.reports.plots.graph_drawing import spectral_layout
from specformer.reports.variants import Arrays, Rows, grouped
from specformer.spectrum import decompose
from specformer.tasks.job import Request, Workplace
from specformer.tasks.resolve import resolve
from specformer.tasks.train import train

#: The steps of the model in order, by the name of each step's output.
STEPS = {
    "graph": "a graph",
    "eigenvalues": "its eigenvalues λ,\nof the Laplacian UΛUᵀ",
    "encoding": "each encoded by\nwaves, ρ(λ)",
    "attention": "attention: every λ\nlooks at the set",
    "responses": "heads decode\nnew eigenvalues λ̄ₘ",
    "basis": "bases U diag(λ̄ₘ) Uᵀ,\ncombined by channel",
    "signal": "signals filtered,\nX′ = Ŝ X",
}


@styled
def model_diagram(steps: Mapping[str, np.ndarray], edges: np.ndarray) -> Figure:
    """The steps from a graph to a filtered signal, left to right.

    Args:
        steps: ``eigenvalues`` [n], ``encoding`` [n, d], ``attention`` [n, n], ``responses``
            [n, heads], ``basis`` [n, n] and ``signal`` [n].
        edges: the graph's edges ``[e, 2]``.
    """
    figure, axes = panels(1.75 * len(STEPS), 2.3, len(STEPS), left=0.22, bottom=0.55)
    places = spectral_layout(len(steps["eigenvalues"]), edges)
    for number, (axis, (name, words)) in enumerate(zip(axes, STEPS.items(), strict=True)):
        axis.set(xticks=[], yticks=[])
        for spine in axis.spines.values():
            spine.set_visible(False)
        if name == "graph":
            _graph(axis, places, edges, np.zeros(len(places)))
        elif name == "signal":
            _graph(axis, places, edges, steps[name])
        elif name == "eigenvalues":
            axis.vlines(steps[name], 0, 1, color=INK, lw=0.9)
            axis.set(xlim=(-0.1, 2.1), ylim=(-0.6, 1.6))
        elif name == "responses":
            for style, response in zip(
                head_looks(steps[name].shape[1]), steps[name].T, strict=True
            ):
                axis.plot(steps["eigenvalues"], response, color=style.color, lw=1.3)
        elif name == "encoding":
            axis.imshow(steps[name], cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        else:
            scale = float(np.abs(steps[name]).max())
            axis.imshow(steps[name], cmap="PuOr_r", vmin=-scale, vmax=scale, aspect="auto")
        axis.set_title(str(number + 1), fontsize=9, color=MUTED, pad=4)
        axis.text(
            0.5, -0.08, words, transform=axis.transAxes, ha="center", va="top", fontsize=7.5,
            color=INK,
        )  # fmt: skip
        if number:
            axis.annotate(
                "", (-0.03, 0.5), (-0.17, 0.5), xycoords="axes fraction",
                textcoords="axes fraction", annotation_clip=False,
                arrowprops={"arrowstyle": "->", "color": MUTED, "lw": 1.0},
            )  # fmt: skip
    return figure


def _graph(axis: Axes, places: np.ndarray, edges: np.ndarray, values: np.ndarray) -> None:
    for a, b in edges:
        axis.plot(*places[[a, b]].T, color=MUTED, lw=0.7, zorder=1)
    scale = float(np.abs(values).max()) or 1.0
    axis.scatter(
        places[:, 0], places[:, 1], s=26, c=values, cmap="PuOr_r", vmin=-scale, vmax=scale,
        edgecolors=HEAT, linewidths=0.8, zorder=2,
    )  # fmt: skip
    axis.set(xlim=(-0.12, 1.12), ylim=(-0.12, 1.12), aspect="equal")


#: A run's result, and the arrays that reports draw.
Ran = tuple[dict[str, Any], dict[str, np.ndarray]]
Pictures = list[list[Figure]]


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures.

    Args:
        number: its number in the paper.
        told: what it shows.
        draw: makes rows of pictures from a run's rows.
        run: trains a new run, given ``assignments``, ``place`` and ``seed``; None if the figure
            needs no run.
        kind: the kind of the run's rows in its result.
    """

    number: int
    told: str
    draw: Callable[[Rows], Pictures]
    run: Callable[..., Ran] | None = None
    kind: str = ""

    def drawn(self, result: Mapping[str, Any], arrays: Arrays) -> Pictures:
        """Its pictures; raises if the run lacks what they show."""
        rows = [row for row in self.draw(Rows.of(self.kind, result, arrays)) if row]
        if not rows:
            raise RunError(f"The run holds nothing that figure {self.number} shows: {self.told}.")
        return rows


def _model(_: Rows) -> Pictures:
    """The steps of an untrained model on one small graph."""
    graph = csbm(0.4, num_nodes=20, degree=5.0, seed=3)
    spectrum = decompose(graph)
    torch.manual_seed(1)
    learned = SpectralFilter(hidden_channels=16, num_heads=4, epsilon=10.0).eval()
    encoder, tokens = learned.encoder, spectrum.distinct.tokens
    with torch.no_grad():
        response = learned(spectrum.eigenvalues)
        encoded = encoder.encoding(spectrum.eigenvalues)
        found = first_attention(encoder, tokens)
        assert found is not None
        first, hidden = found
        attention = attention_matrix(first, hidden, hidden, tokens.weights).mean(dim=0)
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


def _encodings(_: Rows) -> Pictures:
    values = torch.linspace(0, 2, 50)
    waves = {
        float(epsilon): EigenvalueEncoding(64, epsilon)(values)[:, 1:].numpy()
        for epsilon in (1, 10, 100)
    }
    return [[spectral_plots.encoding_plot(values.numpy(), waves)]]


def _filters(rows: Rows) -> Pictures:
    """Learned filters over the true ones."""
    eigenvalues = rows.get("eigenvalues")
    if eigenvalues is None:
        return []
    figures = [
        spectral_plots.filter_plot(
            eigenvalues,
            rows.get(f"{name}/target"),
            responses,
            counts=rows.get("counts"),
            title=name,
            formula=str(group[0].get("formula") or ""),
        )
        for name, group, responses in rows.found("response")
        if responses
    ]
    return [figures[start : start + 3] for start in range(0, len(figures), 3)]


def _dependencies(rows: Rows) -> Pictures:
    """Condensed attention, one picture per filter."""
    return [[_heat(heads.mean(axis=0), name) for name, heads, *_ in _first(rows)]]


def _graphs(rows: Rows) -> Pictures:
    """Condensed attention and learned filters, one row per data set."""
    return [
        [
            _heat(heads.mean(axis=0), name),
            spectral_plots.heads_plot(values, response, title=name),
        ]
        for name, heads, values, response in _first(rows)
        if values is not None and response is not None
    ]


def _molecules(rows: Rows) -> Pictures:
    """Attention and filters of two heads."""
    pictures: Pictures = []
    for name, heads, values, response in _first(rows):
        if values is None or response is None:
            continue
        for head in range(min(2, len(heads), response.shape[1])):
            title = f"{name}, basis {head + 1}"
            line = spectral_plots.heads_plot(
                values, response[:, [head]], points=True, title=title, legend=False
            )
            pictures.append([_heat(heads[head], title), line])
    return pictures


def _images(rows: Rows) -> Pictures:
    """Images raw, truly filtered, and filtered by models."""
    raw, titles = rows.get("raw"), rows.get("titles")
    pictures: Pictures = []
    for name, _, learned in rows.found("image"):
        true = rows.get(f"{name}/true")
        if true is None or raw is None or not learned:
            continue
        for index, image in enumerate(true):
            title = name if titles is None else f"{name}, {titles[index]}"
            own = {model: images[index] for model, images in learned.items()}
            pictures.append([spectral_plots.image_grid(raw[index], image, own, title=title)])
    return pictures


def _heat(matrix: np.ndarray, title: str) -> Figure:
    return spectral_plots.attention_heatmap(matrix, title=title)


def _first(
    rows: Rows,
) -> Iterator[tuple[str, np.ndarray, np.ndarray | None, np.ndarray | None]]:
    """The first Specformer of each filter or data set, and the name of that.

    Its condensed attention by head, some eigenvalues, and its filter's responses to them.
    """
    for name, entries in grouped(rows.having("attention")).items():
        own = entries[0].arrays
        if own["attention"].size:
            heads = own["attention"].reshape(-1, *own["attention"].shape[-2:])
            yield name, heads, own.get("eigenvalues"), own.get("response")


def _zinc(assignments: Sequence[str], place: Workplace, seed: int) -> Ran:
    request = Request("zinc", model="specformer", recipe="paper", changes=tuple(assignments))
    trained = train(resolve(request, runs=1, seed=seed), place)
    return trained.result, trained.outcome.arrays


_one_image = partial(table1, images=1, recipes=["paper"])
_two_graphs = partial(
    table2, datasets=["citeseer", "squirrel"], models=["specformer"], recipes=["paper"], runs=1
)
#: The paper's figures by the name that the command line takes.
FIGURES = {
    "model": PaperFigure(1, "the model, every step computed on one small graph", _model),
    "filters": PaperFigure(
        2,
        "filters that GPR-GNN, BernNet and Specformer learned, over the true ones",
        _filters,
        partial(
            _one_image,
            filters=["high-pass", "band-rejection", "comb"],
            models=["gprgnn", "bernnet", "specformer"],
        ),
        "filters",
    ),
    "dependencies": PaperFigure(
        3,
        "which frequencies attention ties together, for five filters",
        _dependencies,
        partial(_one_image, models=["specformer"]),
        "filters",
    ),
    "graphs": PaperFigure(
        4,
        "attention and learned filters on Citeseer and Squirrel",
        _graphs,
        _two_graphs,
        "nodes",
    ),
    "molecules": PaperFigure(
        5, "attention and learned filters on ZINC", _molecules, _zinc, "molecules"
    ),
    "encodings": PaperFigure(6, "encodings of eigenvalues for ε = 1, 10 and 100", _encodings),
    "images": PaperFigure(
        7,
        "images 19 and 28 after the comb filter: raw, true, GPR-GNN and Specformer",
        _images,
        partial(_one_image, images=[19, 28], filters=["comb"], models=["gprgnn", "specformer"]),
        "filters",
    ),
}
