r"""Parts of pictures: lines, tiles, hills and axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator

from specformer.reports import numbers
from specformer.reports.looks import HEAT, INK, MUTED, RULE, Look, Named
from specformer.reports.plots.panels import SERIES, tell

#: The lowest and the highest eigenvalue that a picture shows.
Window = tuple[float, float]
#: Most points on each edge of a tint.
_EDGE_POINTS = 160
#: Errors have a logarithmic axis if the largest is at least this many times the smallest.
_DECADE = 10.0
#: Least distance of a tick from the lowest value's tick, as a share of the panel's height.
_APART = 0.09


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


def even(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edge of a tint: every so-many-th point, the same for both edges."""
    index = np.unique(np.linspace(0, len(x) - 1, min(_EDGE_POINTS, len(x))).round().astype(int))
    return np.asarray(x)[index], np.asarray(y)[index]


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
    (x, low), (_, high) = even(x, low), even(x, high)
    axis.fill_between(x, low, high, color=style.color, alpha=alpha, lw=0, gid=SERIES + style.label)


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
    heights = dict(zip(axis.get_yticks(), _heights(axis, axis.get_yticks()), strict=True))
    own = _heights(axis, np.array([lowest]))[0]
    ticks = {
        float(tick): plain(tick)
        for tick, height in heights.items()
        if low <= tick <= high and abs(height - own) > _APART
    }
    if lowest > 0 or not is_log:
        ticks[lowest] = plain(float(f"{lowest:.3g}"))
    axis.set_yticks(sorted(ticks), [ticks[tick] for tick in sorted(ticks)])
    axis.set_yticks([], minor=True)
    return is_log


def _heights(axis: Axes, values: np.ndarray) -> np.ndarray:
    """Heights of values of y in a panel, from 0 at its bottom to 1 at its top."""
    points = axis.transData.transform(np.column_stack([np.ones(len(values)), values]))
    return axis.transAxes.inverted().transform(points)[:, 1]


def label_width(labels: Iterable[str]) -> float:
    """The width in inches that the labels of rows need."""
    return 0.2 + 0.083 * max(map(len, labels), default=0)


def power(value: float, _: Any = None) -> str:
    """The label of a tick at a power of ten."""
    return numbers.power_of_ten(round(np.log10(value))) if value > 0 else ""


def plain(value: float, _: Any = None) -> str:
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
