"""Rankings hold every model and recipe, in order, within what there can be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from specformer.reports.looks import OURS, look
from specformer.reports.plots.prediction_plots import accuracy_plot, errors_plot


def test_accuracy_plot_ranks_models_with_intervals():
    results = {
        OURS: {"mean": 0.9, "ci95": 0.02, "values": [0.88, 0.92]},
        "gcn": {"mean": 0.7, "ci95": None},
    }

    axis = accuracy_plot(results).axes[0]

    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["GCN", "Specformer"]
    (segment,) = axis.containers[1].lines[2][0].get_segments()
    np.testing.assert_allclose(segment, [[88, 1], [92, 1]])


def test_errors_plot_has_a_row_a_filter_and_skips_what_a_logarithm_cannot_show():
    figure = errors_plot({"comb": {"gcn": 50.0, OURS: 0.1}, "low-pass": {"gcn": 0.0}})

    axis = figure.axes[0]
    assert axis.get_xscale() == "log"
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["comb", "low-pass"]
    points = {dots.get_label(): dots.get_offsets().tolist() for dots in axis.collections}
    assert points == {"GCN": [[50.0, 0.0]], "Specformer": [[0.1, 0.0]]}


def test_an_interval_wider_than_all_there_can_be_does_not_set_the_axis():
    # Two runs, 20% and 50%: Student's t makes the interval ±191 points.
    results = {OURS: {"mean": 0.35, "ci95": 1.906, "values": [0.2, 0.5]}}

    low, high = accuracy_plot(results).axes[0].get_xlim()

    assert -5 <= low <= 20
    assert 50 <= high <= 105


def test_no_accuracy_above_all_there_can_be_is_marked():
    perfect = accuracy_plot({OURS: {"mean": 1.0, "ci95": 0.0, "values": [1.0, 1.0]}}).axes[0]
    assert perfect.get_xlim()[1] > 100
    assert max(perfect.get_xticks()) == 100


@pytest.mark.parametrize("label", ["GCN", "Medium, ρ(λ) without attention", "M" * 60])
def test_labels_of_ticks_do_not_run_into_each_other(label):
    results = {
        replace(look(OURS), label=label): {"mean": 0.132, "ci95": 0.017, "values": [0.13, 0.134]},
        "mlp": {"mean": 0.187, "ci95": 0.0, "values": [0.187, 0.187]},
    }

    figure = accuracy_plot(results)

    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes = [
        tick.get_window_extent(renderer)
        for tick in figure.axes[0].get_xticklabels()
        if tick.get_text()
    ]
    assert len(boxes) > 1
    assert all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes))


def test_recipes_of_a_model_have_a_row_and_a_mark_each():
    paper, best = (look(OURS).by_recipe(name, n) for n, name in enumerate(("paper", "best")))

    ranked = accuracy_plot({paper: {"mean": 0.7}, best: {"mean": 0.6}}).axes[0]
    errors = errors_plot({"comb": {"gcn": 50.0, paper: 2.0, best: 0.1}}).axes[0]

    labels = [tick.get_text() for tick in ranked.get_yticklabels()]
    assert labels == ["Specformer (best)", "Specformer (paper)"]
    points = {dots.get_label(): dots.get_offsets().tolist() for dots in errors.collections}
    assert points["Specformer (paper)"] == [[2.0, 0.0]]
    assert points["Specformer (best)"] == [[0.1, 0.0]]
    shapes = {dots.get_paths()[0].vertices.tobytes() for dots in errors.collections}
    assert len(shapes) == 3
