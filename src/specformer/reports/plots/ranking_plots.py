r"""Pictures that rank models: accuracies with their intervals, errors at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from specformer.reports import numbers
from specformer.reports.looks import INK, RULE, Named, in_order, look
from specformer.reports.plots.drawing import label_width, power
from specformer.reports.plots.panels import keyed, panels, styled, tell, titled
from specformer.training.evaluation.summaries import interval95

#: Inches: the width of a panel of :mod:`specformer.reports.plots`.
_WIDTH = 3.6
#: What the labels of rows leave to their points at least, so that four ticks can be told apart.
_INNER = 1.9


@styled
def accuracy_plot(results: Mapping[Named, Mapping[str, Any]], *, title: str = "") -> Figure:
    """Models with their 95% intervals, best on top; each run is a faint dot.

    ``results``: model, or its look, to ``{"mean", "ci95", "values"}`` as fractions of 1.
    """
    models = sorted(results, key=lambda model: results[model]["mean"])
    left = label_width(look(model).label for model in models)
    height = 0.85 + 0.31 * max(2, len(models))
    figure, (axis,) = panels(max(_WIDTH, left + _INNER), height, left=left)
    for row, model in enumerate(models):
        style, result = look(model), results[model]
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
    axis.set_yticks(range(len(models)), [look(model).label for model in models])
    for label, model in zip(axis.get_yticklabels(), models, strict=True):
        label.set(color=INK, fontweight="bold" if look(model).ours else "normal")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", color=RULE, lw=0.5)
    axis.set_ylim(-0.6, len(models) - 0.4)
    axis.margins(x=0.08)
    low, high = axis.get_xlim()
    low, high = max(low, -2.0), min(high, 102.0)  # room for a dot at 0 or 100, not for a figure
    axis.set_xlim(low, high)
    axis.set_xticks([tick for tick in axis.get_xticks() if max(low, 0) <= tick <= min(high, 100)])
    axis.set_xlabel("test accuracy (%)")
    titled(axis, title)
    return figure


@styled
def errors_plot(errors: Mapping[str, Mapping[Named, float]]) -> Figure:
    """Every model's error on every filter at a glance, on a logarithmic scale: left is better."""
    models = in_order(model for row in errors.values() for model in row)
    figure, (axis,) = panels(5.6, 0.8 + 0.36 * len(errors), left=label_width(errors))
    for row, found in enumerate(errors.values()):
        drawn = [value for value in found.values() if value > 0]
        if drawn:
            axis.plot([min(drawn), max(drawn)], [row, row], color=RULE, lw=1.0, zorder=1)
    for model in models:
        style = look(model)
        points = [
            (found[model], row)
            for row, found in enumerate(errors.values())
            if found.get(model, 0.0) > 0
        ]
        x, y = zip(*points, strict=True) if points else ((), ())
        size = 64 if style.ours else 34
        axis.scatter(
            x,
            y,
            s=size,
            marker=style.marker,
            color=style.color,
            alpha=0.95,
            lw=0,
            zorder=style.zorder,
            label=style.label,
        )
        rows = list(errors)
        notes = (f"{style.label} on {rows[at]}: {numbers.error(value)}" for value, at in points)
        tell(axis, style.label, x, y, notes)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(numticks=9))
    axis.xaxis.set_major_formatter(FuncFormatter(power))
    axis.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axis.grid(axis="x", color=RULE, lw=0.5)
    axis.set_yticks(range(len(errors)), list(errors))
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.spines["left"].set_visible(False)
    axis.set_ylim(len(errors) - 0.4, -0.6)
    axis.set_xlabel("sum of squared errors, logarithmic scale")
    keyed(figure, axis, columns=7 if len(models) < 5 else 4, handle=1.0)
    return figure
