"""A spectrum in a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from specformer.datasets import grid_graph
from specformer.spectrum import approximate, decompose
from specformer.spectrum.notebook import density_svg


def test_a_spectrum_shows_its_size_and_where_its_eigenvalues_lie():
    shown = decompose(grid_graph(4, 5))._repr_html_()

    root = ElementTree.fromstring(f"<div>{shown}</div>")
    rows = {row[0].text: row[1].text for row in root.iter("tr")}
    assert rows["num nodes"] == "20"
    assert rows["solver"] == "dense"
    assert len(root.findall("svg/rect")) > 3


def test_every_eigenvalue_is_in_a_bar():
    bars = ElementTree.fromstring(
        density_svg(np.array([0.0, 2.0, 1.0]), np.array([2.0, 1.0, 1.0]))
    ).findall("rect")

    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights == [70.0, 35.0, 35.0]
    assert density_svg(np.empty(0), np.empty(0)).count("<rect") == 0


def test_plots_go_where_they_are_told():
    spectrum = decompose(grid_graph(4, 5))
    axes = Figure().subplots()

    assert spectrum.plot(axes, color="red") is axes
    assert sum(bar.get_height() for bar in axes.patches) == 20
    fresh = spectrum.plot()
    assert fresh.get_ylabel() == "eigenvalues in a bin"
    pyplot.close(fresh.figure)


def test_a_density_is_drawn_like_the_eigenvalues_it_stands_for():
    star = [[0, 0, 0, 0], [1, 2, 3, 4]]  # 0, three times 1, 2
    exact, density = decompose(star), approximate(star, probes=5)
    axes = Figure().subplots(2)

    for spectrum, own in zip((exact, density), axes, strict=True):
        heights = [bar.get_height() for bar in spectrum.plot(own).patches]
        np.testing.assert_allclose([each for each in heights if each], [1, 3, 1], rtol=1e-5)
        shown = ElementTree.fromstring(f"<div>{spectrum._repr_html_()}</div>")
        bars = [float(bar.attrib["height"]) for bar in shown.findall("svg/rect")]
        assert bars == [23.3, 70.0, 23.3]
