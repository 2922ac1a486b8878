r"""Figures as files, one or several together, and as SVG inside a page, in its theme."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Sequence
from html import escape
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave

from specformer.files import replacing, write_text
from specformer.reports.looks import VARIABLES
from specformer.reports.plots.drawing import RC, SERIES

_DPI = 160
#: Distance between pictures in points.
_GAP = 10.0
_TAG = re.compile(r"<[^>]+>")
_STYLE = re.compile(r'\bstyle="([^"]*)"')
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_GEOMETRY = re.compile(r'\b(d|x|y|cx|cy)="([^"]*)"')
#: Most pixels of the page per point of the figure.
_SCALE = 1.75
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")


def figure_svg(figure: Figure, alt: str = "") -> str:
    """The figure as an ``<svg>`` element inside a page, with the page's theme.

    Colours of the house style become custom properties with the light tone as fallback; ids have
    the figure's own prefix, so that many figures can share a page.

    Args:
        figure: any figure; those of :mod:`specformer.reports.plots` are themed.
        alt: what the picture shows, for readers who cannot see it.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(RC), warnings.catch_warnings():
        # Text stays text, and browsers have the letters that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>", "", text, flags=re.S
    )
    prefix = "f" + hashlib.sha256(text.encode()).hexdigest()[:8]
    text = _TAG.sub(lambda tag: _clean(tag.group(), prefix), text)
    text = re.sub(r"\n\s*", "\n", text).strip()
    view = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', text)
    assert view
    described = f'role="img" aria-label="{escape(alt)}"' if alt else 'aria-hidden="true"'
    # So that letters have the same size in figures of any width.
    natural = f"--natural: {_SCALE * float(view[1]):.0f}px"
    joins = f'style="{natural}; stroke-linejoin: round; stroke-linecap: butt"'
    root = f'<svg xmlns="http://www.w3.org/2000/svg" {view.group()} {described} {joins}>'
    return root + text[text.index(">") + 1 :]


def _clean(tag: str, prefix: str) -> str:
    tag = re.sub(rf'<g id="{SERIES}', '<g data-series="', tag)
    tag = re.sub(r'<g id="[^"]*"', "<g", tag)
    tag = re.sub(r'\bid="', f'id="{prefix}-', tag)
    tag = re.sub(r'\bxlink:href="', 'href="', tag)
    tag = tag.replace('href="#', f'href="#{prefix}-').replace("url(#", f"url(#{prefix}-")
    tag = _GEOMETRY.sub(lambda match: f'{match[1]}="{_LONG.sub(_short, match[2])}"', tag)
    return _STYLE.sub(lambda match: f'style="{_COLOR.sub(_themed, match[1])}"', tag)


def _short(number: re.Match[str]) -> str:
    # A hundredth of a point is less than a pixel; full precision would double the page's size.
    return f"{float(number.group()):.2f}"


def _themed(color: re.Match[str]) -> str:
    name = VARIABLES.get(color.group())
    return f"var({name}, {color.group()})" if name else color.group()


def save_png(figure: Figure, path: str | Path) -> Path:
    """Write the figure on white, atomically."""
    with replacing(path) as part:
        _write_png(figure, part)
    return Path(path)


def _write_png(figure: Figure, file: Path | io.BytesIO) -> None:
    with matplotlib.rc_context(RC):
        figure.savefig(file, format="png", dpi=_DPI, facecolor="white")


def save_mosaic(rows: Sequence[Sequence[Figure]], stem: Path, alt: str) -> list[Path]:
    """Write rows of figures as ``stem.png`` and ``stem.svg``, on white, atomically.

    ``alt``: what they show, for readers who cannot see it.
    """
    sizes = [[72 * figure.get_size_inches() for figure in row] for row in rows]
    width = max(sum(size[0] for size in row) + _GAP * (len(row) - 1) for row in sizes)
    height = sum(max(size[1] for size in row) for row in sizes) + _GAP * (len(rows) - 1)
    parts, tiles, top = [], [], 0.0
    for row, row_sizes in zip(rows, sizes, strict=True):
        left = 0.0
        for figure, size in zip(row, row_sizes, strict=True):
            where = f'x="{left:.1f}" y="{top:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}"'
            parts.append(figure_svg(figure).replace("<svg ", f"<svg {where} ", 1))
            buffer = io.BytesIO()
            _write_png(figure, buffer)
            buffer.seek(0)
            tiles.append((left, top, np.asarray(imread(buffer, format="png"))[..., :3]))
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
