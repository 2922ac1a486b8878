"""The numbers behind a picture lie where they are drawn."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
from matplotlib.figure import Figure

from specformer.reports.plots import spectral_plots as plots
from specformer.reports.plots.drawing import chart_values
from specformer.reports.plots.svg import figure_svg


def test_a_panels_box_maps_values_to_the_drawn_line():
    x, y = np.linspace(0, 2, 9), np.linspace(-1, 3, 9) ** 2
    figure = plots.filter_plot(x, None, {"gcn": y}, legend=False)
    svg = figure_svg(figure)
    (panel,) = chart_values(figure)["panels"]

    (path,) = re.findall(r'data-series="GCN">\s*<path d="([^"]*)"', svg)
    drawn = np.array(re.findall(r"[ML] ?([\d.]+) ([\d.]+)", path), dtype=float)
    left, top, width, height = panel["box"]
    (series,) = [each for each in panel["series"] if each["name"] == "GCN"]
    across = left + width * (np.array(series["x"]) - panel["x"][0]) / np.ptp(panel["x"])
    along = top + height * (1 - (np.array(series["y"]) - panel["y"][0]) / np.ptp(panel["y"]))
    for point in drawn:
        assert np.hypot(across - point[0], along - point[1]).min() < 0.05


def test_values_are_json_even_without_a_number():
    figure = plots.heads_plot(np.array([0.0, 1.0, 2.0]), np.array([[1.0], [np.nan], [2.0]]))

    text = json.dumps(chart_values(figure), allow_nan=False)

    assert json.loads(text)["panels"][0]["series"][0]["y"] == [1.0, None, 2.0]


def test_letters_that_the_font_lacks_stay_text_without_a_warning():
    figure = Figure()
    figure.text(0.5, 0.5, "日本")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "日本" in figure_svg(figure)
