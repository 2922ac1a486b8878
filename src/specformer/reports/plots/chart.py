r"""Figures that know their numbers: what a page shows under the pointer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: How the name of what an artist belongs to stands in its id, for pages that hide and show it.
SERIES = "series:"
#: An SVG has this many points per inch.
_POINTS = 72.0


@dataclass(frozen=True)
class Series:
    """Points of a panel that a reader can ask for: a line's, or each with a text of its own."""

    axis: Axes
    name: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    notes: Sequence[str] = ()


class Chart(Figure):
    """A figure with the numbers behind it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.series: list[Series] = []


def tell(axis: Axes, name: str, x: Any, y: Any, notes: Iterable[str] = ()) -> None:
    """Keep the numbers of what was drawn.

    With ``notes``, one per point, a page shows the nearest point's text; without, the values of
    all lines of the panel at the pointer's x.
    """
    chart = axis.get_figure(root=True)
    if isinstance(chart, Chart):
        chart.series.append(
            Series(axis, name, _short(np.ravel(x)), _short(np.ravel(y)), tuple(notes))
        )


def chart_values(figure: Figure) -> dict[str, Any] | None:
    """The panels of a drawn figure with their numbers, for JSON; None where it has none.

    A panel's ``box`` is left, top, width and height in the units of the figure's SVG.
    """
    if not isinstance(figure, Chart) or not figure.series:
        return None
    panels = [_panel(figure, axis) for axis in figure.axes]
    return {"panels": [panel for panel in panels if panel["series"]]}


def _panel(figure: Chart, axis: Axes) -> dict[str, Any]:
    width, height = _POINTS * figure.get_size_inches()
    box = axis.get_position()
    sides = (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
    return {
        "box": [round(float(side), 2) for side in sides],
        "x": [*map(float, axis.get_xlim())],
        "y": [*map(float, axis.get_ylim())],
        "log": [axis.get_xscale() == "log", axis.get_yscale() == "log"],
        "names": [axis.get_xlabel(), axis.get_ylabel()],
        "series": [
            {"name": each.name, "x": each.x, "y": each.y}
            | ({"notes": each.notes} if each.notes else {})
            for each in figure.series
            if each.axis is axis
        ],
    }


def _short(values: np.ndarray) -> list[float | None]:
    """Five digits are more than a tooltip shows, and JSON has no NaN."""
    return [float(f"{x:.5g}") if math.isfinite(x) else None for x in values.astype(float).tolist()]
