r"""The model drawn by code: every step as it computes it on one small graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specformer.reports.looks import HEAT, INK, MUTED, head_looks
from specformer.reports.plots.graph_drawing import spectral_layout
from specformer.reports.plots.panels import panels, styled

#: The steps, in order, by the name of what each leaves.
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
    """The way from a graph to a filtered signal, left to right.

    Args:
        steps: ``eigenvalues`` [n], ``encoding`` [n, d], ``attention`` [n, n], ``responses``
            [n, heads], ``basis`` [n, n] and ``signal`` [n].
        edges: of the graph ``[e, 2]``.
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
