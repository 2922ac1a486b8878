r"""Graphs as SVG whose nodes a page can colour in several ways; molecules drawn by RDKit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

_MOLECULE_SIZE = (300, 220)
#: Tints of atoms that raise and that lower a prediction; RDKit takes red, green and blue in [0, 1].
_RAISES, _LOWERS = (0.93, 0.52, 0.20), (0.29, 0.64, 0.87)
#: Width and height of a drawing, and the margin around it.
_SIZE, _MARGIN = (520.0, 400.0), 12.0
_STEPS = 60
#: The strength of edges' pull, and the number of edges above which they are drawn fainter.
_PULL, _MANY_EDGES = 3.0, 800


@dataclass(frozen=True)
class Paint:
    """A way to colour nodes.

    Args:
        name: the name of the choice for a reader.
        told: what the colours mean.
        at: for each node ``[n]`` the number of a hue or, without ``hues``, a strength from -1 to 1.
        hues: the hues, by number.
        centre: a node with a ring around it, or -1.
    """

    name: str
    told: str
    at: np.ndarray
    hues: Sequence[str] = ()
    centre: int = -1

    def style(self, node: int) -> str:
        """The colour of a node."""
        if self.hues:
            return f"fill:var(--plot-{self.hues[int(self.at[node]) % len(self.hues)]})"
        hue = "vermilion" if self.at[node] >= 0 else "blue"
        return f"fill:var(--plot-{hue});fill-opacity:{abs(self.at[node]):.2f}"


def spectral_layout(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Positions of nodes in the unit square ``[n, 2]``.

    They are the second and third eigenvector of the normalised adjacency matrix, with a little
    weight between all nodes, so that several components have one layout. Springs (Fruchterman and
    Reingold, 1991) then move apart nodes that lie on one another.
    """
    matrix = np.full((num_nodes, num_nodes), 1e-3 / max(1, num_nodes))
    matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = 1.0
    scale = matrix.sum(axis=1) ** -0.5
    normalised = scale[:, None] * matrix * scale
    _, vectors = np.linalg.eigh(normalised)
    places = (vectors[:, ::-1] * scale[:, None])[:, 1:3]
    if num_nodes < 3:
        return np.column_stack([np.arange(num_nodes, dtype=float), np.full(num_nodes, 0.5)])
    # Ranks pull in outliers, which eigenvectors of sparse graphs have.
    places = 0.5 * _unit(places) + 0.5 * _unit(places.argsort(axis=0).argsort(axis=0).astype(float))
    return _unit(_spread(_unit(places), np.where(matrix == 1.0, _PULL * normalised, 0.0)))


def _spread(places: np.ndarray, pulls: np.ndarray) -> np.ndarray:
    """Push nodes apart and pull the ends of edges together, in ever smaller steps.

    Edges pull by the normalised adjacency matrix, otherwise hubs would collapse into a point.
    """
    length = len(places) ** -0.5
    for step in range(_STEPS):
        apart = places[:, None, :] - places[None, :, :]
        distance = np.sqrt((apart**2).sum(axis=-1)).clip(1e-3)
        force = (length / distance) ** 2 - pulls * distance / length
        move = (apart * force[..., None]).sum(axis=1) - 0.6 * (places - 0.5)
        size = np.linalg.norm(move, axis=1, keepdims=True).clip(1e-9)
        places = places + move / size * np.minimum(size, 0.06 * (1 - step / _STEPS))
    return places


def _unit(places: np.ndarray) -> np.ndarray:
    low, span = places.min(axis=0), np.ptp(places, axis=0)
    return (places - low) / np.where(span > 0, span, 1.0)


def graph_svg(
    places: np.ndarray,
    edges: np.ndarray,
    paints: Sequence[Paint],
    groups: Sequence[str],
    notes: Sequence[str],
    alt: str,
) -> tuple[str, dict[str, Any]]:
    """The drawing in its first colouring, and the values for other colourings and tooltips.

    ``places`` ``[n, 2]`` are in the unit square. ``groups`` has the name by which a key hides and
    shows each node, ``notes`` the tooltip of each node.
    """
    width, height = _SIZE
    room = np.array(_SIZE) - 2 * _MARGIN
    x, y = (_MARGIN + places * room).round(1).T
    lines = "".join(f"M{x[a]:g} {y[a]:g}L{x[b]:g} {y[b]:g}" for a, b in edges)
    radius = 5.0 if len(places) <= 120 else 3.6
    circles = [
        f'<circle cx="{x[node]:g}" cy="{y[node]:g}" r="{radius}" '
        f'data-series="{escape(groups[node])}" style="{paints[0].style(node)}"/>'
        for node in range(len(places))
    ]
    faint = min(1.0, max(0.15, _MANY_EDGES / max(1, len(edges))))
    natural = f"--natural:{1.35 * width:.0f}px"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(alt)}" class="graph" style="{natural}">'
        f'<path d="{lines}" stroke-opacity="{faint:.2f}"/>{"".join(circles)}</svg>'
    )
    series = [
        {
            "name": group,
            "x": x[own].tolist(),
            "y": y[own].tolist(),
            "notes": [notes[node] for node in own.tolist()],
        }
        for group in dict.fromkeys(groups)
        if (own := np.flatnonzero(np.array(groups) == group)).size
    ]
    colours = [
        {**vars(paint), "at": [round(float(value), 3) for value in paint.at]} for paint in paints
    ]
    return svg, {**_values(_SIZE, series), "paints": colours}


def _values(size: tuple[float, float], series: list[dict[str, Any]]) -> dict[str, Any]:
    """Points of a drawing for tooltips, like those of charts, in the units of its SVG."""
    width, height = size
    panel = {
        "box": [0, 0, width, height],
        "x": [0, width],
        "y": [height, 0],
        "log": [False, False],
        "names": ["", ""],
        "series": series,
    }
    return {"panels": [panel]}


def molecule_svg(smiles: str, shares: np.ndarray, alt: str) -> tuple[str, dict[str, Any]] | None:
    """A drawing of a molecule, and its atoms' values for tooltips.

    ``shares`` ``[n]`` are the contributions of the atoms, in their order in the SMILES. None if
    RDKit is not installed, or reads another number of atoms.
    """
    try:
        from rdkit.Chem import MolFromSmiles
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None
    molecule: Any = MolFromSmiles(smiles)  # None if it cannot be read
    if molecule is None or molecule.GetNumAtoms() != len(shares):
        return None
    strengths = shares / (float(np.abs(shares).max(initial=0.0)) or 1.0)
    tints = np.where(strengths[:, None] >= 0, _RAISES, _LOWERS)
    tints = 1 - np.abs(strengths)[:, None] * (1 - tints)
    colours = {atom: tuple(tint) for atom, tint in enumerate(tints.tolist())}
    drawer = rdMolDraw2D.MolDraw2DSVG(*_MOLECULE_SIZE)
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
    x, y = [round(place.x, 1) for place in places], [round(place.y, 1) for place in places]
    series = [{"name": "", "x": x, "y": y, "notes": notes}]
    # RDKit's document as an element of a page.
    text = drawer.GetDrawingText()
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<!--.*?-->|\s(?:class|xml:space)='[^']*'", "", body, flags=re.S)
    body = re.sub(r"\n\s*", "\n", re.sub(r"(\d+\.\d)\d+", r"\1", body)).strip()
    width, height = _MOLECULE_SIZE
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(alt)}" class="molecule" style="--natural:{1.2 * width:.0f}px">'
    )
    return root + body, _values(_MOLECULE_SIZE, series)


def small_graph_svg(
    num_nodes: int, edges: np.ndarray, shares: np.ndarray, alt: str
) -> tuple[str, dict[str, Any]]:
    """A drawing of a graph that is not a molecule, or that RDKit cannot draw."""
    strengths = shares / (float(np.abs(shares).max(initial=0.0)) or 1.0)
    paint = Paint("contribution", "", strengths)
    notes = [f"node {node}: {share:+.3g}" for node, share in enumerate(shares)]
    places = spectral_layout(num_nodes, edges)
    svg, values = graph_svg(places, edges, [paint], [""] * num_nodes, notes, alt)
    return svg, {"panels": values["panels"]}
