"""Drawn graphs: places from eigenvectors, colours from what is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

from specformer.reports.plots.graph_drawing import Paint, graph_svg, spectral_layout


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
