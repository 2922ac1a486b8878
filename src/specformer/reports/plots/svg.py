r"""A Matplotlib figure as SVG that lives inside a page and follows its theme."""

from __future__ import annotations

import hashlib
import io
import re
from html import escape

import matplotlib
from matplotlib.figure import Figure

from specformer.reports.looks import VARIABLES
from specformer.reports.plots.chart import SERIES
from specformer.reports.plots.panels import RC

_TAG = re.compile(r"<[^>]+>")
_STYLE = re.compile(r'\bstyle="([^"]*)"')
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_GEOMETRY = re.compile(r'\b(d|x|y|cx|cy)="([^"]*)"')
#: Pixels of the page for a point of the figure, at most.
_SCALE = 1.75
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")


def figure_svg(figure: Figure, alt: str = "") -> str:
    """The figure as an ``<svg>`` element for inline use: themed by the page, scaled by its place.

    Colours of the house style become custom properties with the light tone as fallback; ids are
    the figure's own, so that many figures share a page.

    Args:
        figure: any figure; those of :mod:`specformer.reports.plots` are themed.
        alt: what the picture shows, for those who do not see it.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(RC):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>", "", text, flags=re.S
    )
    prefix = "f" + hashlib.sha256(text.encode()).hexdigest()[:8]
    text = _TAG.sub(lambda tag: _clean(tag.group(), prefix), text)
    text = re.sub(r"\n\s*", "\n", text).strip()
    return _root(text, alt)


def _clean(tag: str, prefix: str) -> str:
    tag = re.sub(rf'<g id="{SERIES}', '<g data-series="', tag)
    tag = re.sub(r'<g id="[^"]*"', "<g", tag)
    tag = re.sub(r'\bid="', f'id="{prefix}-', tag)
    tag = re.sub(r'\bxlink:href="', 'href="', tag)
    tag = tag.replace('href="#', f'href="#{prefix}-').replace("url(#", f"url(#{prefix}-")
    tag = _GEOMETRY.sub(lambda match: f'{match[1]}="{_LONG.sub(_short, match[2])}"', tag)
    return _STYLE.sub(lambda match: f'style="{_COLOR.sub(_themed, match[1])}"', tag)


def _short(number: re.Match[str]) -> str:
    # A hundredth of a point is far below a pixel; full precision doubles the page's size.
    return f"{float(number.group()):.2f}"


def _themed(color: re.Match[str]) -> str:
    name = VARIABLES.get(color.group())
    return f"var({name}, {color.group()})" if name else color.group()


def _root(text: str, alt: str) -> str:
    view = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) [\d.]+"', text)
    box, width = (view.group(), float(view[1])) if view else ("", 400.0)
    described = f'role="img" aria-label="{escape(alt)}"' if alt else 'aria-hidden="true"'
    # Letters of one size on the page, whatever the figure's width.
    joins = (
        f'style="--natural: {_SCALE * width:.0f}px; stroke-linejoin: round; stroke-linecap: butt"'
    )
    root = f'<svg xmlns="http://www.w3.org/2000/svg" {box} {described} {joins}>'
    return root + text[text.index(">") + 1 :]
