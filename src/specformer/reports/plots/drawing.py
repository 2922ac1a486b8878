r"""The house style of every picture, parts of pictures, and the numbers that a figure shows.

No function here uses pyplot, so none needs a display or leaves a figure open. Titles are short
headings; a legend is drawn unless the page has one for all pictures.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator

from specformer.reports import numbers
from specformer.reports.looks import HEAT, INK, MUTED, RULE, Look, Named

_Parameters = ParamSpec("_Parameters")
#: The lowest and the highest eigenvalue that a picture shows.
Window = tuple[float, float]
#: Most points on each edge of a tint.
_EDGE_POINTS = 160
#: Errors have a logarithmic axis if the largest is at least this many times the smallest.
_DECADE = 10.0
#: Least distance of a tick from the lowest value's tick, as a share of the panel's height.
_APART = 0.09
#: The id of an artist is this and the name of its line, so that pages can hide and show it.
SERIES = "series:"
#: Height in inches of a line of text below a heading.
_LINE = 0.17
#: Mean width in inches of a letter in a heading and in a note.
_HEADING, _NOTE = 0.095, 0.07
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
    figure.series = {axis: [] for axis in axes}
    inner = (width - columns * (left + 0.06)) / columns
    figure.subplots_adjust(
        left=left / width,
        right=1 - 0.06 / width,
        bottom=bottom / height,
        top=1 - 0.3 / height,
        wspace=(left + 0.06) / inner,
    )
    for axis in axes:
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
    return figure, axes


def add_title(axis: Axes, title: str, note: str = "", subtitle: str = "") -> None:
    """Draw a small heading at the panel's left edge, and a note at its right.

    If there is a subtitle, it is a line below the heading, for which the figure grows. So is a note
    that has no room beside the heading.
    """
    figure = axis.get_figure(root=True)
    assert figure is not None
    room = axis.get_position(original=True).width * figure.get_size_inches()[0]
    if note and not subtitle and _HEADING * len(title) + _NOTE * len(note) > room:
        note, subtitle = "", note
    if note:
        axis.set_title(note, loc="right", fontsize=8.5, color=MUTED, pad=7)
    if subtitle:
        _grow(axis, above=_LINE)
        axis.annotate(
            subtitle, (0, 1), (0, 7), xycoords="axes fraction", textcoords="offset points",
            fontsize=8.5, color=MUTED,
        )  # fmt: skip
    if title:
        pad = 7 + (72 * _LINE if subtitle else 0)
        axis.set_title(title, loc="left", pad=pad, fontsize=10, fontweight="bold", color=INK)


def add_legend(axis: Axes, columns: int = 4, handle: float = 2.2) -> None:
    """Draw a legend below the panel, for which the figure grows."""
    handles, labels = axis.get_legend_handles_labels()
    if not handles:
        return
    columns = min(columns, len(handles))
    _grow(axis, below=0.06 + 0.19 * math.ceil(len(handles) / columns)).legend(
        handles, labels, loc="lower center", ncols=columns, frameon=False, fontsize=8.5,
        borderpad=0, borderaxespad=0.2, handlelength=handle, handletextpad=0.6, columnspacing=1.2,
    )  # fmt: skip


def _grow(axis: Axes, *, above: float = 0.0, below: float = 0.0) -> Figure:
    """Make the figure of a panel taller (inches); its panels keep their size."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    margins, tall = figure.subplotpars, height + above + below
    bottom, top = margins.bottom * height + below, margins.top * height + below
    figure.set_size_inches(width, tall)
    figure.subplots_adjust(bottom=bottom / tall, top=top / tall)
    return figure


class Chart(Figure):
    """A figure with the numbers behind it: for each panel its series, for JSON."""

    series: dict[Axes, list[dict[str, Any]]]


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
        chart.series[axis].append(series)


def chart_values(figure: Figure) -> dict[str, Any] | None:
    """The panels of a drawn figure with their numbers, for JSON; None if it has no numbers.

    A panel's ``box`` is left, top, width and height in the units of the figure's SVG.
    """
    if not isinstance(figure, Chart) or not any(figure.series.values()):
        return None
    width, height = 72 * figure.get_size_inches()  # an SVG has 72 points per inch
    found = []
    for axis, series in figure.series.items():
        box = axis.get_position()
        sides = (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
        panel = {
            "box": [round(float(side), 2) for side in sides],
            "x": [*map(float, axis.get_xlim())],
            "y": [*map(float, axis.get_ylim())],
            "log": [axis.get_xscale() == "log", axis.get_yscale() == "log"],
            "names": [axis.get_xlabel(), axis.get_ylabel()],
            "series": series,
        }
        found += [panel] if series else []
    return {"panels": found}


def _digits(values: Any) -> list[float | None]:
    """Values to five digits, which is more than a tooltip shows; None for NaN, which JSON lacks."""
    flat = np.ravel(values).astype(float).tolist()
    return [float(f"{x:.5g}") if math.isfinite(x) else None for x in flat]


def thin(x: np.ndarray, y: np.ndarray, limit: int = 320) -> tuple[np.ndarray, np.ndarray]:
    """At most about ``limit`` points of a line, without losing a spike.

    Keeps both ends, and the lowest and the highest point of every stretch.
    """
    x, y = np.asarray(x), np.asarray(y)
    if len(x) <= limit:
        return x, y
    kept = {0, len(x) - 1}
    for part in np.array_split(np.arange(len(x)), limit // 2):
        values = np.nan_to_num(y[part])
        kept.update((int(part[values.argmin()]), int(part[values.argmax()])))
    index = np.array(sorted(kept))
    return x[index], y[index]


def spaced(x: np.ndarray, y: np.ndarray, limit: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """At most about ``limit`` points of a path, evenly along its length: both axes from 0 to 1."""
    if len(x) <= limit:
        return x, y
    length = np.append(0.0, np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y))))
    index = np.searchsorted(length, np.linspace(0.0, length[-1], limit + 1))
    index = np.unique(np.append(index, len(x) - 1))
    return x[index], y[index]


def with_last_readings(runs: np.ndarray) -> np.ndarray:
    """Repeat each run's last reading to the end; drop epochs after the last run's end."""
    alive = np.isfinite(runs)
    if not alive.any():
        return runs[:0, :0]
    runs = runs[: int(np.flatnonzero(alive.any(axis=1))[-1]) + 1, alive.any(axis=0)]
    alive = np.isfinite(runs)
    rows = np.where(alive, np.arange(len(runs))[:, None], alive.argmax(axis=0))
    return np.take_along_axis(runs, np.maximum.accumulate(rows, axis=0), axis=0)


def draw_line(axis: Axes, x: np.ndarray, y: np.ndarray, style: Look) -> None:
    """Draw a curve in a model's look; a single point is drawn as a dot."""
    axis.plot(
        x, y, color=style.color, marker="o" if len(x) == 1 else "", lw=style.width,
        ls=style.linestyle, label=style.label, gid=SERIES + style.label, zorder=style.zorder,
    )  # fmt: skip
    tell(axis, style.label, x, y)


def draw_marks(axis: Axes, x: np.ndarray, y: np.ndarray, style: Look, notes: Iterable[str]) -> None:
    """Draw points, each with a note, joined by a thin line."""
    axis.plot(
        x, y, color=style.color, marker="o", ms=4.5, lw=0.8, ls=style.linestyle,
        label=style.label, gid=SERIES + style.label, zorder=style.zorder,
    )  # fmt: skip
    tell(axis, style.label, x, y, notes)


def draw_tint(
    axis: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, style: Look, alpha: float
) -> None:
    """Draw the range of several runs behind their line."""
    some = np.unique(np.linspace(0, len(x) - 1, min(_EDGE_POINTS, len(x))).round().astype(int))
    axis.fill_between(
        x[some], low[some], high[some], color=style.color, alpha=alpha, lw=0,
        gid=SERIES + style.label,
    )  # fmt: skip


def draw_tile(
    axis: Axes,
    image: np.ndarray,
    column: int,
    rows: tuple[float, float],
    title: str = "",
    weight: str = "normal",
    **how: Any,
) -> None:
    """Draw one image of a row, at its column, with a title."""
    left, (top, bottom) = 1.07 * column, rows
    axis.imshow(image, interpolation="none", extent=(left, left + 1, bottom, top), **how)
    axis.text(left + 0.5, top - 0.03, title, ha="center", va="bottom", fontsize=8.5, weight=weight)


def draw_cells(
    axis: Axes, shares: np.ndarray, texts: Sequence[Sequence[str]], notes: Iterable[str]
) -> None:
    """Draw a square of cells, each with a text and an opacity that is its share of one.

    ``notes`` has the tooltip of each cell, row by row. Opacity instead of a colour map, because the
    same picture stands on light and on dark pages.
    """
    for (row, column), share in np.ndenumerate(shares):
        corner = (column + 0.03, row + 0.03)
        axis.add_patch(Rectangle(corner, 0.94, 0.94, facecolor=HEAT, alpha=0.9 * share, lw=0))
        axis.add_patch(Rectangle(corner, 0.94, 0.94, facecolor="none", edgecolor=RULE, lw=0.6))
        axis.text(
            column + 0.5, row + 0.5, texts[row][column], ha="center", va="center", fontsize=9,
            color=INK,
        )  # fmt: skip
    rows, columns = np.indices(shares.shape) + 0.5
    tell(axis, "", columns, rows, notes)
    axis.set(xlim=(0, len(shares)), ylim=(len(shares), 0), aspect="equal")
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def draw_points(axis: Axes, x: np.ndarray, y: np.ndarray, style: Look, most: int) -> None:
    """Draw a cloud of points, at most ``most`` of them: the same random choice every time."""
    shown = np.arange(len(x))
    if len(x) > most:
        shown = np.random.default_rng(0).choice(len(x), most, replace=False)
    points = zip(x[shown], y[shown], strict=True)
    axis.plot(
        x[shown], y[shown], ls="", marker="o", ms=2.2, mew=0, color=style.color, alpha=0.5,
        zorder=2, gid=SERIES + style.label,
    )  # fmt: skip
    notes = (f"{style.label}: {response:.4g} at λ = {value:.4g}" for value, response in points)
    tell(axis, style.label, x[shown], y[shown], notes)
    # A key with larger dots.
    axis.plot([], [], ls="", marker="o", ms=5, mew=0, color=style.color, label=style.label)


def draw_density(
    axis: Axes, eigenvalues: np.ndarray, counts: np.ndarray | None, window: Window | None = None
) -> None:
    """Draw grey hills at the bottom of a panel where eigenvalues lie."""
    heights, edges = histogram(eigenvalues, counts, window)
    hills = 0.13 * heights / (heights.max() or 1.0)
    where = axis.get_xaxis_transform()
    axis.stairs(hills, edges, fill=True, color=MUTED, alpha=0.28, lw=0, transform=where, zorder=0)


def histogram(
    values: np.ndarray, weights: np.ndarray | None, window: Window | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """How many eigenvalues lie in each of 64 bins, and the bins' edges."""
    span = window or eigenvalue_limits(values)
    heights, edges = np.histogram(values, 64, range=span, weights=weights)
    return heights.astype(float), edges


def within(values: np.ndarray, window: Window | None) -> np.ndarray:
    """Which of the values lie in a window; all of them without one."""
    low, high = window or (-np.inf, np.inf)
    return (values >= low) & (values <= high)


def eigenvalue_limits(values: np.ndarray) -> tuple[float, float]:
    """[0, 2], or more if a value lies outside."""
    low = min(0.0, float(np.min(values, initial=0.0)))
    return low, max(2.0, float(np.max(values, initial=2.0)))


def eigenvalue_axis(axis: Axes, values: np.ndarray, window: Window | None = None) -> None:
    """Set up the x axis of a picture over eigenvalues."""
    low, high = window or eigenvalue_limits(values)
    axis.set_xlim(low - 0.005 * (high - low), high + 0.005 * (high - low))
    if (low, high) == (0.0, 2.0):
        axis.set_xticks([0, 0.5, 1, 1.5, 2], ["0", "0.5", "1", "1.5", "2"])
    axis.set_xlabel("eigenvalue λ")
    axis.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def response_limits(
    target: np.ndarray | None, responses: Mapping[Named, np.ndarray]
) -> tuple[float, float]:
    """Limits of the y axis: room for everything, unless that would flatten the true response."""
    drawn = [np.nanmedian(np.atleast_2d(response), axis=0) for response in responses.values()]
    everything = np.concatenate([*drawn, *([] if target is None else [target]), [0.0]])
    low, high = float(np.nanmin(everything)), float(np.nanmax(everything))
    if target is not None:
        floor, top = float(np.min(target)), float(np.max(target))
        room = 0.45 * ((top - floor) or 1.0)
        low, high = max(low, floor - room), min(high, top + room)
    return above_hills(low, high)


def above_hills(low: float, high: float) -> tuple[float, float]:
    """Limits that leave the bottom of the panel to the eigenvalues' density."""
    height = (high - low) or 1.0
    return low - 0.22 * height, high + 0.06 * height


def error_axis(axis: Axes, drawn: np.ndarray, lowest: float) -> bool:
    """Scale the y axis for errors, with a tick at the lowest; returns whether it is logarithmic.

    It is logarithmic if the errors span a factor of ten or more.
    """
    positive = drawn[drawn > 0]
    is_log = bool(positive.size) and positive.max() >= _DECADE * positive.min()
    if is_log:
        axis.set_yscale("log")
        bottom, top = np.log10(axis.get_ylim())
        narrow = np.floor(top) - np.ceil(bottom) < 2
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,), numticks=6))
    else:
        axis.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    low, high = axis.get_ylim()
    values = np.append(axis.get_yticks(), lowest)
    points = axis.transData.transform(np.column_stack([np.ones(len(values)), values]))
    *heights, own = axis.transAxes.inverted().transform(points)[:, 1]  # from 0 to 1 in the panel
    ticks = {
        float(tick): plain(tick)
        for tick, height in zip(values, heights, strict=False)
        if low <= tick <= high and abs(height - own) > _APART
    }
    if lowest > 0 or not is_log:
        ticks[lowest] = plain(float(f"{lowest:.3g}"))
    axis.set_yticks(sorted(ticks), [ticks[tick] for tick in sorted(ticks)])
    axis.set_yticks([], minor=True)
    return is_log


def label_width(labels: Iterable[str]) -> float:
    """The width in inches that the labels of rows need."""
    return 0.2 + 0.083 * max(map(len, labels), default=0)


def plain(value: float) -> str:
    """The label of a tick at a number that is not negative.

    Example:
        >>> plain(0.02), plain(20_000), plain(2e-5), plain(1e-5)
        ('0.02', '20,000', '2×10⁻⁵', '10⁻⁵')
    """
    if not value or 1e-3 <= value < 1e6:
        return f"{value:,.6g}"
    digits, exponent = f"{value:.2e}".split("e")
    leading = "" if float(digits) == 1 else f"{float(digits):g}×"
    return leading + numbers.power_of_ten(int(exponent))
