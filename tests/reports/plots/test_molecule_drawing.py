"""Drawn molecules: RDKit's atoms in our tints, and graphs where there is none."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from specformer.reports.plots.molecule_drawing import molecule_svg, small_graph_svg


def test_atoms_are_tinted_and_told():
    pytest.importorskip("rdkit")

    svg, values = molecule_svg("CCO", np.array([0.0, -0.5, 2.0]), 'ethanol & "co"')

    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == 'ethanol & "co"'
    white, blue, orange = re.findall(r"<ellipse[^>]*fill:#([0-9A-F]{6})", svg)
    assert white == "FFFFFF"
    assert int(blue[4:], 16) > int(blue[:2], 16)
    assert int(orange[:2], 16) > int(orange[4:], 16) + 100
    (series,) = values["panels"][0]["series"]
    assert series["notes"] == ["C 1: +0", "C 2: -0.5", "O 3: +2"]
    assert all(0 < x < 300 for x in series["x"])


@pytest.mark.parametrize(("smiles", "atoms"), [("CCO", 2), ("not one", 3), ("", 1)])
def test_what_is_no_such_molecule_is_not_drawn(smiles, atoms):
    pytest.importorskip("rdkit")

    assert molecule_svg(smiles, np.zeros(atoms), "") is None


def test_other_graphs_are_drawn_as_graphs():
    svg, values = small_graph_svg(3, np.array([[0, 1], [1, 2]]), np.array([1.0, 0.0, -2.0]), "a")

    assert svg.count("<circle") == 3
    assert values["panels"][0]["series"][0]["notes"] == ["node 0: +1", "node 1: +0", "node 2: -2"]
