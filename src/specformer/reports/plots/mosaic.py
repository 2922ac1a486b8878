r"""Several pictures as one, as PNG and as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave

from specformer.files import replacing, write_text
from specformer.reports.plots.panels import RC
from specformer.reports.plots.svg import figure_svg

_DPI = 160
#: Points between pictures.
_GAP = 10.0


def save_mosaic(rows: Sequence[Sequence[Figure]], stem: Path, alt: str) -> list[Path]:
    """Write rows of figures as ``stem.png`` and ``stem.svg``, on white, atomically.

    ``alt``: what they show, for those who do not see it.
    """
    sizes = [[72 * figure.get_size_inches() for figure in row] for row in rows]
    width = max(sum(size[0] for size in row) + _GAP * (len(row) - 1) for row in sizes)
    height = sum(max(size[1] for size in row) for row in sizes) + _GAP * (len(rows) - 1)
    parts, tiles, top = [], [], 0.0
    for row, row_sizes in zip(rows, sizes, strict=True):
        left = 0.0
        for figure, size in zip(row, row_sizes, strict=True):
            parts.append(_placed(figure_svg(figure), left, top, *size))
            tiles.append((left, top, _pixels(figure)))
            left += size[0] + _GAP
        top += max(size[1] for size in row_sizes) + _GAP
    document = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.1f} {height:.1f}" '
        f'width="{width:.1f}pt" height="{height:.1f}pt" font-family="DejaVu Sans, sans-serif">'
        f'<title>{escape(alt)}</title><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(parts)}</svg>"
    )
    vector, raster = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    write_text(vector, document)
    page = np.ones((_dots(height), _dots(width), 3))
    for left, top, pixels in tiles:
        x, y = _dots(left), _dots(top)
        tall, wide = min(len(pixels), len(page) - y), min(pixels.shape[1], page.shape[1] - x)
        page[y : y + tall, x : x + wide] = pixels[:tall, :wide]
    with replacing(raster) as part:
        imsave(part, page, format="png")
    return [raster, vector]


def _dots(points: float) -> int:
    return round(points * _DPI / 72)


def _placed(svg: str, left: float, top: float, width: float, height: float) -> str:
    where = f'<svg x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
    return re.sub(r"^<svg ", where, svg, count=1)


def _pixels(figure: Figure) -> np.ndarray:
    buffer = io.BytesIO()
    with matplotlib.rc_context(RC):
        figure.savefig(buffer, format="png", dpi=_DPI, facecolor="white")
    buffer.seek(0)
    return np.asarray(imread(buffer, format="png"))[..., :3]
