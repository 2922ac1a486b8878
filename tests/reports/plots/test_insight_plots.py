"""Pictures of accuracy and energy draw the numbers they are given."""

from __future__ import annotations

import numpy as np
import pytest

from specformer.reports.plots.chart import chart_values
from specformer.reports.plots.insight_plots import (
    calibration_plot,
    energy_plot,
    share_plot,
    spread_plot,
)
from specformer.training.evaluation.summaries import wilson95


def test_shares_stand_at_their_bins_with_their_intervals():
    bins = {"gcn": np.array([[1.0, 2.0, 10, 5], [4.0, 8.0, 20, 20]])}

    figure = share_plot(bins, xlabel="neighbours")

    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "4–7"]
    (series,) = chart_values(figure)["panels"][0]["series"]
    assert series["y"] == [50.0, 100.0]
    low, high = (100 * end for end in wilson95(0.5, 10))
    assert series["notes"][0] == (
        f"GCN, neighbours 1: 5 of 10 right, 50.0% (95%: {low:.0f} to {high:.0f})"
    )


def test_shares_of_neighbours_are_percentages():
    figure = share_plot({"gcn": np.array([[0.8, 1.0, 4, 1]])}, xlabel="x", percent=True)

    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["80–100%"]


def test_calibration_is_accuracy_over_mean_confidence():
    figure = calibration_plot({"specformer": np.array([[0.6, 0.7, 4, 1, 2.6]])})

    (series,) = chart_values(figure)["panels"][0]["series"]
    assert (series["x"], series["y"]) == ([65.0], [25.0])


def test_energy_has_a_line_for_each_signal():
    shares = np.zeros((4, 3))
    shares[1] = 1.0

    figure = energy_plot(shares)

    series = chart_values(figure)["panels"][0]["series"]
    assert [each["name"] for each in series] == ["signals before the filter", "after it", "labels"]
    assert series[0]["x"] == pytest.approx([0.25, 0.75, 1.25, 1.75])
    assert all(each["y"] == [0, 100, 0, 0] for each in series)


def test_errors_stand_over_spreads_beside_the_line_where_they_are_equal():
    rows = np.array([[0.1, 0.2, 30], [0.4, 0.5, 29]])
    (axis,) = spread_plot({"specformer": rows, "forest": rows[:0]}).axes
    line, *drawn = axis.lines
    assert list(line.get_xdata()) == list(line.get_ydata()) == [0, 0.5]
    (ours,) = (each for each in drawn if each.get_label() == "Specformer")
    np.testing.assert_array_equal(ours.get_xydata(), rows[:, :2])
