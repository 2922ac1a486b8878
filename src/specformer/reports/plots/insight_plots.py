r"""Pictures of where a model is right, and of what its filters pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from specformer.reports.looks import HEAT, MUTED, RULE, Look, Named, in_order, look
from specformer.reports.plots.chart import SERIES, tell
from specformer.reports.plots.drawing import draw_line, eigenvalue_axis, styled
from specformer.reports.plots.panels import panels, titled
from specformer.training.evaluation.summaries import wilson95

_PANEL = (3.6, 2.6)
#: What energy is of, in the order of its columns.
ENERGIES = (
    Look("signals before the filter", "slate", (3, 1.2)),
    Look("after it", "vermilion", width=1.9),
    Look("labels", "blue", (1, 1.1)),
)


@styled
def share_plot(
    bins: Mapping[Named, np.ndarray], *, xlabel: str, percent: bool = False, title: str = ""
) -> Figure:
    """How many of a bin are right, with Wilson's 95% intervals, for one model or several.

    Args:
        bins: model to rows of lower end, upper end, count and how many are right.
        xlabel: what the bins are of.
        percent: the bins are of shares of one, not of counts.
        title: a heading.
    """
    figure, (axis,) = panels(*_PANEL)
    names = _names(bins, percent)
    for number, model in enumerate(in_order(bins)):
        style, rows = look(model), bins[model]
        places = np.array([list(names).index(row[0]) for row in rows], dtype=float)
        shares = rows[:, 3] / rows[:, 2]
        spans = np.array(
            [wilson95(share, int(n)) for share, n in zip(shares, rows[:, 2], strict=True)]
        )
        shifted = places + 0.14 * (number - (len(bins) - 1) / 2)
        axis.vlines(
            shifted, 100 * spans[:, 0], 100 * spans[:, 1], color=style.color, lw=1.1, alpha=0.6,
            gid=SERIES + style.label,
        )  # fmt: skip
        axis.plot(
            shifted, 100 * shares, color=style.color, marker="o", ms=4.5, lw=0.8,
            ls=style.linestyle, label=style.label, gid=SERIES + style.label, zorder=style.zorder,
        )  # fmt: skip
        notes = (
            f"{style.label}, {xlabel} {names[row[0]]}: {row[3]:,.0f} of {row[2]:,.0f} right, "
            f"{100 * row[3] / row[2]:.1f}% (95%: {100 * low:.0f} to {100 * high:.0f})"
            for row, (low, high) in zip(rows, spans, strict=True)
        )
        tell(axis, style.label, shifted, 100 * shares, notes)
    axis.set_xticks(range(len(names)), list(names.values()))
    if len(names) > 6:
        for label in axis.get_xticklabels():
            label.set(fontsize=7, rotation=30, ha="right", rotation_mode="anchor")
    axis.set(xlim=(-0.6, len(names) - 0.4), ylim=(-3, 103), xlabel=xlabel, ylabel="right (%)")
    axis.grid(axis="y", color=RULE, lw=0.5)
    titled(axis, title)
    return figure


def _names(bins: Mapping[Named, np.ndarray], percent: bool) -> dict[float, str]:
    """The bins of all models by their lower ends, ascending."""
    every = {float(row[0]): float(row[1]) for rows in bins.values() for row in rows}
    if percent:
        return {low: f"{100 * low:.0f}–{100 * every[low]:.0f}%" for low in sorted(every)}
    whole = {low: (int(low), int(every[low]) - 1) for low in sorted(every)}
    return {low: f"{a}" if a == b else f"{a}–{b}" for low, (a, b) in whole.items()}


@styled
def calibration_plot(bins: Mapping[Named, np.ndarray], *, title: str = "") -> Figure:
    """Accuracy over confidence: on the diagonal, predictions are as sure as they should be.

    ``bins``: model to rows of lower end, upper end, count, how many are right, and the sum of
    their confidences.
    """
    figure, (axis,) = panels(*_PANEL)
    axis.plot((0, 100), (0, 100), color=MUTED, lw=0.8, zorder=1)
    for model in in_order(bins):
        style, rows = look(model), bins[model]
        right, sure = 100 * rows[:, 3] / rows[:, 2], 100 * rows[:, 4] / rows[:, 2]
        axis.plot(
            sure, right, color=style.color, lw=style.width, ls=style.linestyle,
            label=style.label, gid=SERIES + style.label, zorder=style.zorder,
        )  # fmt: skip
        sizes = 10 + 90 * rows[:, 2] / rows[:, 2].max()
        axis.scatter(
            sure, right, s=sizes, color=style.color, lw=0, alpha=0.75, gid=SERIES + style.label
        )
        notes = (
            f"{style.label}: {row[2]:,.0f} nodes, {mean:.1f}% sure, {share:.1f}% right"
            for row, mean, share in zip(rows, sure, right, strict=True)
        )
        tell(axis, style.label, sure, right, notes)
    axis.set(xlim=(-2, 103), ylim=(-3, 104), xlabel="confidence (%)", ylabel="right (%)")
    axis.grid(color=RULE, lw=0.5)
    titled(axis, title)
    return figure


@styled
def energy_plot(shares: np.ndarray, *, title: str = "") -> Figure:
    """Shares of energy over [0, 2], ``[bins, 3]``: before the filter, after it, of the labels."""
    figure, (axis,) = panels(*_PANEL)
    edges = np.linspace(0.0, 2.0, len(shares) + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    for style, column in zip(ENERGIES, 100 * shares.T, strict=True):
        draw_line(axis, middles, column, style)
    eigenvalue_axis(axis, np.array([0.0, 2.0]))
    axis.set_ylabel("energy in a bin (%)")
    axis.set_ylim(bottom=0)
    titled(axis, title)
    return figure


@styled
def attention_image(matrix: np.ndarray, eigenvalues: np.ndarray, *, title: str = "") -> Figure:
    """How much each eigenvalue (row) looks at each (column), ``[m, m]``, strongest in full colour.

    The colour map ends in nothing, so that the picture sits on light and on dark pages.
    """
    figure, (axis,) = panels(3.0, 3.0)
    clear = LinearSegmentedColormap.from_list("heat", [f"{HEAT}00", f"{HEAT}ff"])
    axis.imshow(matrix, cmap=clear, vmin=0, interpolation="none", aspect="auto", origin="lower")
    ticks = np.unique(np.linspace(0, len(eigenvalues) - 1, 5).round().astype(int))
    names = [f"{eigenvalues[tick]:.2f}" for tick in ticks]
    axis.set_xticks(ticks, names)
    axis.set_yticks(ticks, names)
    axis.set(xlabel="looks at λ", ylabel="eigenvalue λ, by rank")
    titled(axis, title)
    return figure


@styled
def size_plot(bins: Mapping[Named, np.ndarray], *, ylabel: str, title: str = "") -> Figure:
    """Mean errors over graphs' sizes: rows of smallest and largest size, count and mean error."""
    figure, (axis,) = panels(*_PANEL)
    for model in in_order(bins):
        style, rows = look(model), bins[model]
        middles = rows[:, :2].mean(axis=1)
        axis.hlines(
            rows[:, 3], rows[:, 0], rows[:, 1], color=style.color, lw=1.1, alpha=0.5,
            gid=SERIES + style.label,
        )  # fmt: skip
        axis.plot(
            middles, rows[:, 3], color=style.color, marker="o", ms=4.5, lw=0.8,
            ls=style.linestyle, label=style.label, gid=SERIES + style.label, zorder=style.zorder,
        )  # fmt: skip
        notes = (
            f"{style.label}, {low:.0f} to {high:.0f} nodes, {count:,.0f} graphs: {error:.4g}"
            for low, high, count, error in rows
        )
        tell(axis, style.label, middles, rows[:, 3], notes)
    axis.set(xlabel="nodes of a graph", ylabel=ylabel)
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", color=RULE, lw=0.5)
    titled(axis, title)
    return figure


@styled
def spread_plot(bins: Mapping[Named, np.ndarray], *, title: str = "") -> Figure:
    """Errors over spreads of runs, and where both are equal: rows of spread, error, count."""
    figure, (axis,) = panels(*_PANEL)
    most = max((float(rows[:, :2].max()) for rows in bins.values() if len(rows)), default=1.0)
    axis.plot((0, most), (0, most), color=MUTED, lw=0.8, zorder=1)
    for model in in_order(bins):
        style, rows = look(model), bins[model]
        axis.plot(
            rows[:, 0], rows[:, 1], color=style.color, marker="o", ms=4.5, lw=0.8,
            ls=style.linestyle, label=style.label, gid=SERIES + style.label, zorder=style.zorder,
        )  # fmt: skip
        notes = (
            f"{style.label}, {count:,.0f} graphs: spread {spread:.4g}, error {error:.4g}"
            for spread, error, count in rows
        )
        tell(axis, style.label, rows[:, 0], rows[:, 1], notes)
    axis.set(xlabel="spread over runs", ylabel="error (RMS)", xlim=(0, None), ylim=(0, None))
    axis.grid(axis="y", color=RULE, lw=0.5)
    titled(axis, title)
    return figure
