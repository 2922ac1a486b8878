"""Every figure of the paper is drawn, of numbers that stand in a run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image
from tests.reports.example_run import DATASETS, FILTERS, example

from specformer.errors import RunError
from specformer.paper.figures import FIGURES
from specformer.reports.plots.drawing import chart_values
from specformer.reports.plots.svg import save_mosaic


@pytest.fixture(scope="module")
def ran():
    """A run of filters and nodes, with one of molecules beside them."""
    result, arrays = example()
    draw = np.random.default_rng(0)
    where = "molecules/zinc/specformer"
    molecules = {
        f"{where}/eigenvalues": draw.uniform(0, 2, 40),
        f"{where}/response": draw.normal(size=(40, 3)),
        f"{where}/attention": draw.dirichlet(np.ones(3), size=(3, 3)),
    }
    entry = {"dataset": "zinc", "model": "specformer", "metric": "mae", "runs": 1}
    return {**result, "molecules": [entry]}, arrays | molecules


def test_there_is_one_of_each_number():
    assert sorted(each.number for each in FIGURES.values()) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model", [1]),
        ("filters", [3]),
        ("dependencies", [3]),
        ("graphs", [2] * len(DATASETS)),
        ("molecules", [2, 2]),
        ("encodings", [1]),
        ("images", [1] * 2 * len(FILTERS)),
    ],
)
def test_a_figure_has_its_pictures(ran, name, shape):
    rows = FIGURES[name].drawn(*ran)

    assert [len(row) for row in rows] == shape


def test_filters_draw_the_runs_responses(ran):
    result, arrays = ran
    figure = FIGURES["filters"].drawn(result, arrays)[0][2]

    (panel,) = chart_values(figure)["panels"]
    ours = next(each for each in panel["series"] if each["name"] == "Specformer")
    median = np.median(arrays["filters/comb/specformer/response"], axis=0)
    np.testing.assert_allclose(ours["y"], median, rtol=1e-4, atol=1e-6)


def test_two_bases_of_molecules_are_their_own(ran):
    _, arrays = ran
    rows = FIGURES["molecules"].drawn(*ran)

    for head, (heat, _) in enumerate(rows):
        texts = [text.get_text() for text in heat.axes[0].texts][:9]
        matrix = arrays["molecules/zinc/specformer/attention"][head]
        assert texts == [f"{share:.2f}" for share in matrix.ravel()]


@pytest.mark.parametrize("name", ["filters", "dependencies", "graphs", "molecules", "images"])
def test_a_run_of_something_else_is_refused(name):
    with pytest.raises(RunError, match=f"figure {FIGURES[name].number} shows"):
        FIGURES[name].drawn({}, {})


def test_a_mosaic_is_a_png_and_an_svg_of_one_shape(ran, tmp_path):
    rows = FIGURES["graphs"].drawn(*ran)

    raster, vector = save_mosaic(rows, tmp_path / "graphs", "attention & filters")

    root = ElementTree.parse(vector).getroot()
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    with Image.open(raster) as image:
        pixels = image.size
    assert pixels[0] / pixels[1] == pytest.approx(width / height, rel=0.01)
    inner = root.findall("{http://www.w3.org/2000/svg}svg")
    assert len(inner) == 4
    for each in inner:
        assert float(each.attrib["x"]) + float(each.attrib["width"]) <= width + 0.2
        assert float(each.attrib["y"]) + float(each.attrib["height"]) <= height + 0.2
