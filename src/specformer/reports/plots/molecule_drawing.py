r"""Small graphs as SVG, their nodes tinted by what they contribute: molecules drawn by RDKit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from specformer.reports.plots.graph_drawing import Paint, graph_svg, spectral_layout

_SIZE = (300, 220)
#: Tints of what raises and of what lowers a prediction; RDKit takes parts of red, green and blue.
_RAISES, _LOWERS = (0.93, 0.52, 0.20), (0.29, 0.64, 0.87)


def molecule_svg(smiles: str, shares: np.ndarray, alt: str) -> tuple[str, dict[str, Any]] | None:
    """A molecule, and its atoms' numbers for who points at it.

    None where RDKit is not installed, or does not read the SMILES into that many atoms.

    Args:
        smiles: the molecule.
        shares: of each atom, in its order in the SMILES, what it contributes ``[n]``.
        alt: what the picture shows.
    """
    try:
        from rdkit.Chem import MolFromSmiles
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None
    molecule: Any = MolFromSmiles(smiles)  # None where it is not one
    if molecule is None or molecule.GetNumAtoms() != len(shares):
        return None
    strengths = shares / (float(np.abs(shares).max(initial=0.0)) or 1.0)
    colours = {atom: _tint(value) for atom, value in enumerate(strengths.tolist())}
    drawer = rdMolDraw2D.MolDraw2DSVG(*_SIZE)
    options: Any = drawer.drawOptions()
    options.useBWAtomPalette()
    options.clearBackground = False
    options.highlightRadius = 0.38
    options.fillHighlights = True
    options.maxFontSize = 16
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer,
        molecule,
        highlightAtoms=list(colours),
        highlightAtomColors=colours,
        highlightBonds=[],
    )
    drawer.FinishDrawing()
    places = [drawer.GetDrawCoords(atom) for atom in range(len(shares))]
    symbols = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    notes = [f"{symbol} {atom + 1}: {shares[atom]:+.3g}" for atom, symbol in enumerate(symbols)]
    points = [(place.x, place.y) for place in places]
    return _inline(drawer.GetDrawingText(), alt), _panel(points, notes)


def small_graph_svg(
    num_nodes: int, edges: np.ndarray, shares: np.ndarray, alt: str
) -> tuple[str, dict[str, Any]]:
    """A graph that is no molecule, or that nothing here can draw as one."""
    strengths = shares / (float(np.abs(shares).max(initial=0.0)) or 1.0)
    paint = Paint("contribution", "", strengths)
    notes = [f"node {node}: {share:+.3g}" for node, share in enumerate(shares)]
    places = spectral_layout(num_nodes, edges)
    svg, values = graph_svg(places, edges, [paint], [""] * num_nodes, notes, alt)
    return svg, {"panels": values["panels"]}


def _tint(value: float) -> tuple[float, float, float]:
    colour = np.array(_RAISES if value >= 0 else _LOWERS)
    red, green, blue = (1 - abs(value) * (1 - colour)).tolist()
    return red, green, blue


def _inline(text: str, alt: str) -> str:
    """RDKit's document as an element of a page."""
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<!--.*?-->|\s(?:class|xml:space)='[^']*'", "", body, flags=re.S)
    body = re.sub(r"(\d+\.\d)\d+", r"\1", body)
    width, height = _SIZE
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(alt)}" class="molecule" style="--natural:{1.2 * width:.0f}px">'
    )
    return root + re.sub(r"\n\s*", "\n", body).strip()


def _panel(points: Sequence[tuple[float, float]], notes: Sequence[str]) -> dict[str, Any]:
    width, height = _SIZE
    across, along = zip(*((round(x, 1), round(y, 1)) for x, y in points), strict=True)
    panel = {
        "box": [0, 0, width, height],
        "x": [0, width],
        "y": [height, 0],
        "log": [False, False],
        "names": ["", ""],
        "series": [{"name": "", "x": across, "y": along, "notes": notes}],
    }
    return {"panels": [panel]}
