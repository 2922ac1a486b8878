r"""The house style of every picture, and figures that keep the numbers they show.

No function here uses pyplot, so none needs a display or leaves a figure open. Titles are short
headings; a legend is drawn unless the page has one for all pictures.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specformer.reports.looks import INK, MUTED

_Parameters = ParamSpec("_Parameters")
#: The id of an artist is this and the name of its line, so that pages can hide and show it.
SERIES = "series:"
#: An SVG has this many points per inch.
_POINTS = 72.0
#: Used while a figure is built and while it is written. A dollar sign in a user's title stays one,
#: and text stays text in an SVG.
RC: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "specformer",
    "path.simplify": True,
}


def styled(draw: Callable[_Parameters, Figure]) -> Callable[_Parameters, Figure]:
    """Draw in the house style, whatever the caller's settings are."""

    @functools.wraps(draw)
    def drawn(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> Figure:
        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return drawn


def panels(
    width: float, height: float, columns: int = 1, *, left: float = 0.56, bottom: float = 0.44
) -> tuple[Figure, list[Axes]]:
    """A figure (inches) of bare panels in a row, in the house style.

    Margins are fixed: panels on a page line up, and a report is drawn in half the time that a
    layout engine takes.
    """
    figure = Chart(figsize=(width, height))
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    inner = (width - columns * (left + 0.06)) / columns
    figure.subplots_adjust(
        left=left / width,
        right=1 - 0.06 / width,
        bottom=bottom / height,
        top=1 - 0.3 / height,
        wspace=(left + 0.06) / inner,
    )
    for axis in axes:
        _bare(axis)
    return figure, axes


def _bare(axis: Axes) -> None:
    axis.patch.set_visible(False)
    for side, spine in axis.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(MUTED)
        spine.set_linewidth(0.6)
    axis.tick_params(which="both", color=MUTED, labelcolor=MUTED, labelsize=8.5, width=0.6)
    axis.tick_params(which="major", length=3, pad=3)
    axis.tick_params(which="minor", length=0)
    axis.xaxis.label.set_color(MUTED)
    axis.yaxis.label.set_color(MUTED)
    axis.set_axisbelow(True)


#: Height in inches of a line of text below a heading.
_LINE = 0.17
_HEADING: dict[str, Any] = {"fontsize": 10, "fontweight": "bold", "color": INK}


def add_title(axis: Axes, title: str, note: str = "") -> None:
    """Draw a small heading at the panel's left edge, and a note at its right."""
    if note:
        axis.set_title(note, loc="right", fontsize=8.5, color=MUTED, pad=7)
    if title:
        axis.set_title(title, loc="left", pad=7, **_HEADING)


def add_headings(figure: Figure, axis: Axes, title: str, subtitle: str) -> None:
    """Draw a heading and, if there is a subtitle, a line below it for which the figure grows."""
    add_title(axis, title)
    if not subtitle:
        return
    _grow(figure, above=_LINE)
    axis.set_title(title, loc="left", pad=7 + 72 * _LINE, **_HEADING)
    axis.annotate(
        subtitle, (0, 1), (0, 7), xycoords="axes fraction", textcoords="offset points",
        fontsize=8.5, color=MUTED,
    )  # fmt: skip


def add_legend(figure: Figure, axis: Axes, columns: int = 4, handle: float = 2.2) -> None:
    """Draw a legend below the panel, for which the figure grows."""
    handles, labels = axis.get_legend_handles_labels()
    if not handles:
        return
    columns = min(columns, len(handles))
    _grow(figure, below=0.06 + 0.19 * math.ceil(len(handles) / columns))
    figure.legend(
        handles, labels, loc="lower center", ncols=columns, frameon=False, fontsize=8.5,
        borderpad=0, borderaxespad=0.2, handlelength=handle, handletextpad=0.6, columnspacing=1.2,
    )  # fmt: skip


def _grow(figure: Figure, *, above: float = 0.0, below: float = 0.0) -> None:
    """Make a figure taller (inches); its panels keep their size."""
    width, height = figure.get_size_inches()
    margins, tall = figure.subplotpars, height + above + below
    bottom, top = margins.bottom * height + below, margins.top * height + below
    figure.set_size_inches(width, tall)
    figure.subplots_adjust(bottom=bottom / tall, top=top / tall)


class Chart(Figure):
    """A figure with the numbers behind it: the panel of each series, and the series for JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.series: list[tuple[Axes, dict[str, Any]]] = []


def tell(axis: Axes, name: str, x: Any, y: Any, notes: Iterable[str] = ()) -> None:
    """Keep the numbers of what was drawn, for readers who point at it.

    With ``notes``, one per point, a page shows the nearest point's text; without, the values of
    all lines of the panel at the pointer's x.
    """
    chart = axis.get_figure(root=True)
    if isinstance(chart, Chart):
        series: dict[str, Any] = {"name": name, "x": _digits(x), "y": _digits(y)}
        if texts := tuple(notes):
            series["notes"] = texts
        chart.series.append((axis, series))


def chart_values(figure: Figure) -> dict[str, Any] | None:
    """The panels of a drawn figure with their numbers, for JSON; None if it has no numbers.

    A panel's ``box`` is left, top, width and height in the units of the figure's SVG.
    """
    if not isinstance(figure, Chart) or not figure.series:
        return None
    panels = [_panel_values(figure, axis) for axis in figure.axes]
    return {"panels": [panel for panel in panels if panel["series"]]}


def _panel_values(figure: Chart, axis: Axes) -> dict[str, Any]:
    width, height = _POINTS * figure.get_size_inches()
    box = axis.get_position()
    sides = (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
    return {
        "box": [round(float(side), 2) for side in sides],
        "x": [*map(float, axis.get_xlim())],
        "y": [*map(float, axis.get_ylim())],
        "log": [axis.get_xscale() == "log", axis.get_yscale() == "log"],
        "names": [axis.get_xlabel(), axis.get_ylabel()],
        "series": [series for own, series in figure.series if own is axis],
    }


def _digits(values: Any) -> list[float | None]:
    """Values to five digits, which is more than a tooltip shows; None for NaN, which JSON lacks."""
    flat = np.ravel(values).astype(float).tolist()
    return [float(f"{x:.5g}") if math.isfinite(x) else None for x in flat]
