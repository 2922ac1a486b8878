"""How spectra and other results are shown in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Bins of a histogram, and the width and height of its drawing.
BINS, _SIZE = 64, (320, 70)


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """An HTML table of two columns."""
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{body}</table>"


def density_svg(eigenvalues: np.ndarray) -> str:
    """A histogram of eigenvalues in [0, 2] as SVG."""
    counts, _ = np.histogram(eigenvalues, BINS, range=(0.0, 2.0))
    width, height = _SIZE
    step, scale = width / BINS, height / max(1, int(counts.max(initial=0)))
    bars = "".join(
        f'<rect x="{step * place:.1f}" y="{height - scale * count:.1f}" width="{step - 1:.1f}" '
        f'height="{scale * count:.1f}"/>'
        for place, count in enumerate(counts.tolist())
        if count
    )
    return (
        f'<svg width="{width}" height="{height}" role="img" fill="#4ba3dd" '
        f'aria-label="eigenvalues from 0 to 2">{bars}</svg>'
    )


def axes_or_new(axes: Axes | None) -> Axes:
    """These axes, or new ones of a pyplot figure, which notebooks show automatically."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.figure(figsize=(5, 3), layout="constrained").subplots()
    return axes
