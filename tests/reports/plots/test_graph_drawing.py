"""Drawn graphs: places from eigenvectors, colours from what is known; molecules by RDKit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from specformer.reports.plots.graph_drawing import (
    Paint,
    graph_svg,
    molecule_svg,
    small_graph_svg,
    spectral_layout,
)


def test_communities_are_drawn_apart():
    draw = np.random.default_rng(0)
    halves = np.repeat([0, 1], 30)
    odds = np.where(halves[:, None] == halves, 0.4, 0.02)
    edges = np.argwhere(np.triu(draw.random((60, 60)) < odds, k=1))

    places = spectral_layout(60, edges)

    assert places.min() >= 0
    assert places.max() <= 1
    centres = np.stack([places[halves == half].mean(axis=0) for half in (0, 1)])
    within = np.linalg.norm(places - centres[halves], axis=1).mean()
    assert np.linalg.norm(centres[0] - centres[1]) > 1.5 * within


@pytest.mark.parametrize("edges", [np.empty((0, 2), dtype=int), np.array([[0, 1]])])
@pytest.mark.parametrize("nodes", [2, 3, 9])
def test_graphs_of_few_edges_have_places(nodes, edges):
    places = spectral_layout(nodes, edges)

    assert np.isfinite(places).all()
    assert len(np.unique(places.round(6), axis=0)) == nodes
    assert spectral_layout(1, edges[:0]).shape == (1, 2)


def test_a_drawing_tells_every_node_and_paint():
    paints = [
        Paint("class", "By class.", np.array([0, 1, 0]), ("blue", "green")),
        Paint("strength", "Strong.", np.array([1.0, -0.5, 0.0])),
    ]
    places, edges = np.array([[0.0, 0.0], [1.0, 0.5], [0.5, 1.0]]), np.array([[0, 1], [1, 2]])

    svg, values = graph_svg(places, edges, paints, ["<a>", "b", "<a>"], ["n0", "n1", "n2"], 'a "b"')

    circles = re.findall(r"<circle[^>]*>", svg)
    assert ["blue" in circle for circle in circles] == [True, False, True]
    assert 'data-series="&lt;a&gt;"' in circles[0]
    assert svg.count("M") == 2
    assert 'aria-label="a &quot;b&quot;"' in svg
    (panel,) = values["panels"]
    assert {each["name"]: each["notes"] for each in panel["series"]} == {
        "<a>": ["n0", "n2"], "b": ["n1"],
    }  # fmt: skip
    assert values["paints"][1]["at"] == [1.0, -0.5, 0.0]
    assert "blue" in paints[1].style(1)


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
