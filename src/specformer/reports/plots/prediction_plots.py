r"""Pictures of predictions: against measured values, by group, and by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from specformer.reports import numbers
from specformer.reports.looks import INK, MUTED, RULE, Look, Named, by_look, in_order, look
from specformer.reports.plots.drawing import (
    SERIES,
    add_legend,
    add_title,
    draw_cells,
    draw_line,
    draw_marks,
    label_width,
    panels,
    spaced,
    styled,
    tell,
)
from specformer.training.evaluation.summaries import interval95, wilson95

#: Width and height in inches; about square within the margins.
_SQUARE = (3.0, 2.9)
_PANEL = (3.6, 2.6)
#: Least width in inches beside the labels of rows, so that four ticks can be told apart.
_INNER = 1.9
#: Most points of a picture; more only make a report heavy.
_MOST_POINTS = 800
#: Most points that are drawn large.
_FEW_POINTS = 100
#: Numbers from here on have few ticks, so that those of the x axis have room, with commas.
_LARGE = 10_000
#: Most letters of the name of a class or a target.
_LONGEST = 26


@styled
def agreement_plot(
    measured: np.ndarray, predicted: np.ndarray, style: Look, *, title: str = "", target: str = ""
) -> Figure:
    """Predictions ``[n]`` over measured numbers ``[n]``, NaN where unknown, and the diagonal.

    Of very many points a random choice is drawn, the same every time, and the heading says so.
    """
    known = np.flatnonzero(np.isfinite(measured) & np.isfinite(predicted))
    shown = known
    if len(known) > _MOST_POINTS:
        shown = np.random.default_rng(0).choice(known, _MOST_POINTS, replace=False)
    figure, (axis,) = panels(*_SQUARE)
    both = np.concatenate([measured[known], predicted[known]])
    low, high = (float(both.min()), float(both.max())) if len(both) else (0.0, 1.0)
    room = 0.04 * ((high - low) or 1.0)
    limits = (low - room, high + room)
    axis.plot(limits, limits, color=MUTED, lw=0.8, zorder=1)
    axis.plot(
        measured[shown], predicted[shown], ls="", marker="o", mew=0, color=style.color,
        ms=2.6 if len(shown) > _FEW_POINTS else 4.2, alpha=0.45, zorder=2,
    )  # fmt: skip
    pairs = zip(measured[shown], predicted[shown], strict=True)
    tell(
        axis,
        style.label,
        measured[shown],
        predicted[shown],
        (f"measured {true:.4g}, predicted {taken:.4g}" for true, taken in pairs),
    )
    axis.set(xlim=limits, ylim=limits)
    is_large = _LARGE <= max(map(abs, limits)) < 1000 * _LARGE
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(3 if is_large else 5, steps=[1, 2, 5, 10]))
        if is_large:
            side.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}".replace("-", "−")))
    axis.set_xlabel(f"measured {_short(target)}".strip())
    axis.set_ylabel("predicted")
    note = f"{len(shown):,} of {len(known):,}" if len(shown) < len(known) else ""
    add_title(axis, _short(title), note)
    return figure


@styled
def threshold_plot(
    classes: Mapping[Look, tuple[np.ndarray, np.ndarray]], *, precision: bool, title: str = ""
) -> Figure:
    """How well scores ``[n]`` separate classes ``[n]`` of 1 and 0, by model.

    True over false positives or, with ``precision``, precision over recall, at every threshold. If
    all known classes are the same, there is a note instead of a line.
    """
    figure, (axis,) = panels(*_SQUARE)
    if not precision:
        axis.plot((0, 1), (0, 1), color=MUTED, lw=0.8, zorder=1)
    shares = {style: rates_by_threshold(*pair) for style, pair in classes.items()}
    both = {style: own for style, own in shares.items() if own[0][-1] and own[1][-1]}
    for style, (found, false, exact) in by_look(both).items():
        if precision:  # points between two ones are left out: there precision only falls
            rises = np.flatnonzero(np.diff(found)) + 1
            path = np.append(0.0, found[rises]), np.append(exact[rises[:1]], exact[rises])
        else:
            path = false, found
        draw_line(axis, *spaced(*path), style)
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    axis.set_xlabel("recall" if precision else "false positive rate")
    axis.set_ylabel("precision" if precision else "true positive rate")
    axis.grid(color=RULE, lw=0.5)
    add_title(axis, _short(title), "" if both else "one class alone")
    return figure


@styled
def confusion_plot(counts: np.ndarray, names: Sequence[str], *, title: str = "") -> Figure:
    """The share of each true class (row) that was predicted as each class (column).

    ``counts`` ``[classes, classes]`` are true by predicted; an empty class has an empty row.
    """
    names = [_short(name) for name in names]
    size, wide = len(counts), label_width(names)
    slanted = max(map(len, names)) > 3
    side, foot = wide + 0.2, 0.2 + (0.62 * wide if slanted else 0.25)
    inner = size * max(0.3, min(0.46, 3.2 / size))
    figure, (axis,) = panels(inner + side + 0.06, inner + foot + 0.3, left=side, bottom=foot)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    texts = [
        [f"{100 * share:.0f}" if total else "" for share in row]
        for row, (total,) in zip(shares, totals, strict=True)
    ]
    notes = (
        f"{names[row]} taken for {names[column]}: {counts[row, column]:,} of {totals[row, 0]:,}"
        for row, column in np.ndindex(shares.shape)
    )
    draw_cells(axis, shares, texts, notes)
    centres = np.arange(size) + 0.5
    axis.set_yticks(centres, names)
    axis.set_xticks(centres, names)
    axis.set(xlabel="predicted", ylabel="class")
    if slanted:
        for label in axis.get_xticklabels():
            label.set(rotation=40, horizontalalignment="right", rotation_mode="anchor")
    add_title(axis, title)
    return figure


def _short(name: str) -> str:
    """A name without its middle if it is long: long names often begin or end alike."""
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[:half]}…{name[1 + half - _LONGEST :]}"


def rates_by_threshold(
    classes: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At every threshold, from the highest: true and false positive rate, and precision.

    Classes are 0, 1 or NaN, which is left out. Equal scores pass a threshold together.
    """
    known = np.isfinite(classes) & np.isfinite(scores)
    order = np.argsort(-scores[known], kind="stable")
    ones, ranked = classes[known][order], scores[known][order]
    last = np.append(np.diff(ranked) != 0, True)[: len(ranked)]  # of those with an equal score
    true = np.append(0, np.cumsum(ones)[last])
    taken = np.append(0, np.flatnonzero(last) + 1)
    exact = np.divide(true, taken, out=np.ones(len(true)), where=taken > 0)
    zeros = max(1, len(ones) - int(ones.sum()))
    return true / max(1, int(ones.sum())), (taken - true) / zeros, exact


@styled
def share_plot(
    bins: Mapping[Named, np.ndarray], *, xlabel: str, percent: bool = False, title: str = ""
) -> Figure:
    """The share of right predictions in each bin, with Wilson's 95% intervals, by model.

    ``bins``: model to rows of lower end, upper end, count and count of right ones; with ``percent``
    the bins are of fractions of 1, not of counts.
    """
    figure, (axis,) = panels(*_PANEL)
    names = _names(bins, percent)
    for number, (style, rows) in enumerate(by_look(bins).items()):
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
        notes = (
            f"{style.label}, {xlabel} {names[row[0]]}: {row[3]:,.0f} of {row[2]:,.0f} right, "
            f"{100 * row[3] / row[2]:.1f}% (95%: {100 * low:.0f} to {100 * high:.0f})"
            for row, (low, high) in zip(rows, spans, strict=True)
        )
        draw_marks(axis, shifted, 100 * shares, style, notes)
    axis.set_xticks(range(len(names)), list(names.values()))
    if len(names) > 6:
        for label in axis.get_xticklabels():
            label.set(fontsize=7, rotation=30, ha="right", rotation_mode="anchor")
    axis.set(xlim=(-0.6, len(names) - 0.4), ylim=(-3, 103), xlabel=xlabel, ylabel="right (%)")
    axis.grid(axis="y", color=RULE, lw=0.5)
    add_title(axis, title)
    return figure


def _names(bins: Mapping[Named, np.ndarray], percent: bool) -> dict[float, str]:
    """The names of the bins of all models by their lower ends, ascending."""
    every = {float(row[0]): float(row[1]) for rows in bins.values() for row in rows}
    if percent:
        return {low: f"{100 * low:.0f}–{100 * every[low]:.0f}%" for low in sorted(every)}
    whole = {low: (int(low), int(every[low]) - 1) for low in sorted(every)}
    return {low: f"{a}" if a == b else f"{a}–{b}" for low, (a, b) in whole.items()}


@styled
def calibration_plot(bins: Mapping[Named, np.ndarray], *, title: str = "") -> Figure:
    """Accuracy over confidence: on the diagonal the two are equal.

    ``bins``: model to rows of lower end, upper end, count, count of right ones, and the sum of
    their confidences.
    """
    figure, (axis,) = panels(*_PANEL)
    axis.plot((0, 100), (0, 100), color=MUTED, lw=0.8, zorder=1)
    for style, rows in by_look(bins).items():
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
    add_title(axis, title)
    return figure


@styled
def size_plot(
    bins: Mapping[Named, np.ndarray], parts: str = "nodes", *, ylabel: str, title: str = ""
) -> Figure:
    """Mean errors by size of graphs: rows of smallest and largest size, count and mean error.

    ``parts``: what the size of a graph counts.
    """
    figure, (axis,) = panels(*_PANEL)
    for style, rows in by_look(bins).items():
        middles = rows[:, :2].mean(axis=1)
        axis.hlines(
            rows[:, 3], rows[:, 0], rows[:, 1], color=style.color, lw=1.1, alpha=0.5,
            gid=SERIES + style.label,
        )  # fmt: skip
        notes = (
            f"{style.label}, {low:.0f} to {high:.0f} {parts}, {count:,.0f} tested: {error:.4g}"
            for low, high, count, error in rows
        )
        draw_marks(axis, middles, rows[:, 3], style, notes)
    axis.set(xlabel=f"number of {parts}", ylabel=ylabel)
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", color=RULE, lw=0.5)
    add_title(axis, title)
    return figure


@styled
def spread_plot(bins: Mapping[Named, np.ndarray], *, title: str = "") -> Figure:
    """Errors over the spread of runs, and the diagonal: rows of spread, error, count."""
    figure, (axis,) = panels(*_PANEL)
    most = max((float(rows[:, :2].max()) for rows in bins.values() if len(rows)), default=1.0)
    axis.plot((0, most), (0, most), color=MUTED, lw=0.8, zorder=1)
    for style, rows in by_look(bins).items():
        notes = (
            f"{style.label}, {count:,.0f} graphs: spread {spread:.4g}, error {error:.4g}"
            for spread, error, count in rows
        )
        draw_marks(axis, rows[:, 0], rows[:, 1], style, notes)
    axis.set(xlabel="spread over runs", ylabel="error (RMS)", xlim=(0, None), ylim=(0, None))
    axis.grid(axis="y", color=RULE, lw=0.5)
    add_title(axis, title)
    return figure


@styled
def accuracy_plot(results: Mapping[Named, Mapping[str, Any]], *, title: str = "") -> Figure:
    """Models with their 95% intervals, the first on top; each run is a faint dot.

    ``results``: model, or its look, to ``{"mean", "ci95", "values"}`` as fractions of 1.
    """
    upwards = [(look(model), result) for model, result in results.items()][::-1]
    looks = [style for style, _ in upwards]
    left = label_width(style.label for style in looks)
    height = 0.85 + 0.31 * max(2, len(looks))
    figure, (axis,) = panels(max(_PANEL[0], left + _INNER), height, left=left)
    for row, (style, result) in enumerate(upwards):
        runs = 100 * np.asarray(result.get("values") or [], dtype=float)
        axis.scatter(runs, np.full(len(runs), row), s=28, color=style.color, alpha=0.35, lw=0)
        low, high = interval95(result["mean"], result.get("ci95") or 0.0)
        axis.errorbar(
            100 * result["mean"],
            row,
            xerr=[[100 * (result["mean"] - low)], [100 * (high - result["mean"])]],
            fmt="o",
            color=style.color,
            markersize=7 if style.ours else 5,
            linewidth=1.6,
        )
        mean = f"{style.label}: {100 * result['mean']:.2f}%"
        span = f", 95% interval {100 * low:.2f} to {100 * high:.2f}" if high > low else ""
        tell(axis, style.label, [100 * result["mean"]], [row], [mean + span])
        notes = (f"{style.label}, run {run}: {x:.2f}%" for run, x in enumerate(runs, start=1))
        if len(runs) > 1:
            tell(axis, style.label, runs, np.full(len(runs), row), notes)
    axis.set_yticks(range(len(looks)), [style.label for style in looks])
    for label, style in zip(axis.get_yticklabels(), looks, strict=True):
        label.set(color=INK, fontweight="bold" if style.ours else "normal")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", color=RULE, lw=0.5)
    axis.set_ylim(-0.6, len(looks) - 0.4)
    axis.margins(x=0.08)
    low, high = axis.get_xlim()
    low, high = max(low, -2.0), min(high, 102.0)  # room for a dot at 0 or 100, not for a figure
    axis.set_xlim(low, high)
    axis.set_xticks([tick for tick in axis.get_xticks() if max(low, 0) <= tick <= min(high, 100)])
    axis.set_xlabel("test accuracy (%)")
    add_title(axis, title)
    return figure


@styled
def errors_plot(errors: Mapping[str, Mapping[Named, float]]) -> Figure:
    """Every model's error on every filter, on a logarithmic scale: left is better."""
    rows = {name: by_look(found) for name, found in errors.items()}
    looks = in_order(style for found in rows.values() for style in found)
    figure, (axis,) = panels(5.6, 0.8 + 0.36 * len(errors), left=label_width(errors))
    for at, found in enumerate(rows.values()):
        if drawn := [value for value in found.values() if value > 0]:
            axis.plot([min(drawn), max(drawn)], [at, at], color=RULE, lw=1.0, zorder=1)
    for style in looks:
        own = {name: found[style] for name, found in rows.items() if found.get(style, 0.0) > 0}
        x, y = list(own.values()), [list(rows).index(name) for name in own]
        axis.scatter(
            x, y, s=64 if style.ours else 34, marker=style.marker, color=style.color, alpha=0.95,
            lw=0, zorder=style.zorder, label=style.label,
        )  # fmt: skip
        notes = (f"{style.label} on {name}: {numbers.error(value)}" for name, value in own.items())
        tell(axis, style.label, x, y, notes)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(numticks=9))
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: numbers.power_of_ten(round(np.log10(value))))
    )
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.grid(axis="x", color=RULE, lw=0.5)
    axis.set_yticks(range(len(errors)), list(errors))
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.spines["left"].set_visible(False)
    axis.set_ylim(len(errors) - 0.4, -0.6)
    axis.set_xlabel("sum of squared errors, logarithmic scale")
    add_legend(axis, columns=7 if len(looks) < 5 else 4, handle=1.0)
    return figure
