"""Pictures of predictions show what was predicted and where it is right; rankings all models."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from specformer.reports.looks import look
from specformer.reports.plots.drawing import chart_values, spaced
from specformer.reports.plots.prediction_plots import (
    accuracy_plot,
    agreement_plot,
    calibration_plot,
    confusion_plot,
    errors_plot,
    rates_by_threshold,
    share_plot,
    spread_plot,
    threshold_plot,
)
from specformer.training.evaluation.summaries import wilson95

OURS = look("specformer")


def classes_and_scores(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    classes = (random.random(200) < 0.3).astype(float)
    return classes, np.round(random.random(200) + 0.4 * classes, 1)  # many scores are equal


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_scikit_learns(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    classes, scores = classes_and_scores(seed)
    found, false, exact = rates_by_threshold(classes, scores)
    false_rate, true_rate, _ = metrics.roc_curve(classes, scores, drop_intermediate=False)
    np.testing.assert_allclose((false, found), (false_rate, true_rate))
    precision, recall, _ = metrics.precision_recall_curve(classes, scores)
    np.testing.assert_allclose(exact[1:], precision[:-1][::-1])
    np.testing.assert_allclose(found[1:], recall[:-1][::-1])


def test_unknown_classes_are_left_out() -> None:
    classes, scores = classes_and_scores(0)
    more = np.append(classes, [np.nan, np.nan]), np.append(scores, [0.1, 2.0])
    for one, other in zip(
        rates_by_threshold(classes, scores), rates_by_threshold(*more), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_target_without_known_classes_is_a_point() -> None:
    for share in rates_by_threshold(np.full(3, np.nan), np.arange(3.0)):
        assert len(share) == 1
    unknown = np.full(3, np.nan)
    for precision in (True, False):
        assert threshold_plot({OURS: (unknown, np.arange(3.0))}, precision=precision).axes
    assert agreement_plot(unknown, np.arange(3.0), OURS).axes


def test_few_points_are_drawn_larger() -> None:
    sizes = [
        agreement_plot(np.arange(count), np.arange(count), OURS).axes[0].lines[-1].get_markersize()
        for count in (1.0, 100.0, 101.0, 5000.0)
    ]
    assert sizes[0] == sizes[1] > sizes[2] == sizes[3]


def test_rare_ones_are_all_drawn() -> None:
    """Of many zeros and few ones, precision at every one of these."""
    random = np.random.default_rng(0)
    classes = (np.arange(40_000) % 2_000 == 7).astype(float)
    scores = random.standard_normal(40_000) + 2.0 * classes
    order = np.argsort(-scores)
    ranks = np.flatnonzero(classes[order]) + 1
    expected = np.arange(1, 21) / ranks
    (line,) = threshold_plot({OURS: (classes, scores)}, precision=True).axes[0].lines
    np.testing.assert_allclose(line.get_xdata(), np.arange(21) / 20)
    np.testing.assert_allclose(line.get_ydata(), np.append(expected[0], expected))


def test_a_long_path_keeps_its_shape() -> None:
    """The area below the points that are drawn is that below all."""
    random = np.random.default_rng(0)
    classes = (random.random(40_000) < 0.01).astype(float)
    found, false, _ = rates_by_threshold(classes, random.standard_normal(40_000) + 3.0 * classes)
    x, y = spaced(false, found)
    assert len(x) <= 202
    areas = [(np.diff(a) * (b[1:] + b[:-1]) / 2).sum() for a, b in ((x, y), (false, found))]
    np.testing.assert_allclose(*areas, rtol=1e-3)


def test_one_class_alone_is_no_error() -> None:
    found, false, _ = rates_by_threshold(np.zeros(3), np.arange(3.0))
    assert found.tolist() == [0.0] * 4
    assert false[-1] == 1.0


@pytest.mark.parametrize("only", [0.0, 1.0, np.nan])
def test_one_class_alone_has_no_line_but_a_note(only: float) -> None:
    classes = np.array([only, np.nan, only])
    (axis,) = threshold_plot({OURS: (classes, np.arange(3.0))}, precision=True).axes
    assert not axis.lines
    (axis,) = threshold_plot({OURS: (classes, np.arange(3.0))}, precision=False).axes
    (diagonal,) = axis.lines
    np.testing.assert_array_equal(*diagonal.get_data())
    assert axis.get_title(loc="right") == "one class alone"
    unscored = np.array([np.nan, 0.5, 0.4])  # the only one has no score
    pair = np.array([1.0, 0.0, 0.0]), unscored
    assert not threshold_plot({OURS: pair}, precision=True).axes[0].lines


def test_points_are_the_known_pairs_within_equal_limits() -> None:
    measured = np.array([0.0, 1.0, np.nan, 3.0])
    figure = agreement_plot(measured, measured + 0.5, OURS, title="set", target="logS")
    (axis,) = figure.axes
    diagonal, points = axis.lines
    np.testing.assert_array_equal(points.get_xydata(), [[0, 0.5], [1, 1.5], [3, 3.5]])
    np.testing.assert_array_equal(*diagonal.get_data())
    assert axis.get_xlim() == axis.get_ylim()
    assert axis.get_xlabel() == "measured logS"


def test_of_many_points_a_fixed_part_is_drawn() -> None:
    measured = np.arange(5000.0)
    drawn = [agreement_plot(measured, measured, OURS).axes[0] for _ in range(2)]
    assert [len(axis.lines[1].get_xdata()) for axis in drawn] == [800, 800]
    np.testing.assert_array_equal(*(axis.lines[1].get_xdata() for axis in drawn))
    assert drawn[0].get_title(loc="right") == "800 of 5,000"


def test_long_names_stay_within_their_panel() -> None:
    name = "the mean solubility of target number 17 (mmol per litre)"
    pair = np.arange(3.0), np.arange(3.0)
    for figure in (
        agreement_plot(*pair, OURS, title=name, target=name),
        threshold_plot({OURS: (np.array([0.0, 1, 1]), np.arange(3.0))}, precision=True, title=name),
    ):
        axis = figure.axes[0]
        renderer = FigureCanvasAgg(figure).get_renderer()
        for text in (axis.xaxis.label, axis._left_title):
            extent = text.get_window_extent(renderer)
            assert text.get_text()
            assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width


@pytest.mark.parametrize("precision", [True, False])
def test_a_line_a_model(precision: bool) -> None:
    looks = [look("gin"), OURS]
    figure = threshold_plot(
        {style: classes_and_scores(seed) for seed, style in enumerate(looks)}, precision=precision
    )
    lines = figure.axes[0].lines
    assert len(lines) == 2 + (not precision)
    assert [line.get_label() for line in lines[-2:]] == [style.label for style in looks]


def test_a_class_without_nodes_has_an_empty_row() -> None:
    counts = np.array([[8, 2, 0], [0, 0, 0], [1, 1, 2]])
    (axis,) = confusion_plot(counts, ["one", "two", "t" * 40], title="set").axes
    texts = [text.get_text() for text in axis.texts]
    assert texts == ["80", "20", "0", "", "", "", "25", "25", "50"]
    shown = [label.get_text() for label in axis.get_yticklabels()]
    assert shown == ["one", "two", "t" * 13 + "…" + "t" * 12]
    filled = [patch.get_alpha() for patch in axis.patches[::2]]
    np.testing.assert_allclose(filled, 0.9 * np.array([0.8, 0.2, 0, 0, 0, 0, 0.25, 0.25, 0.5]))


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


def test_errors_stand_over_spreads_beside_the_line_where_they_are_equal():
    rows = np.array([[0.1, 0.2, 30], [0.4, 0.5, 29]])
    (axis,) = spread_plot({"specformer": rows, "forest": rows[:0]}).axes
    line, *drawn = axis.lines
    assert list(line.get_xdata()) == list(line.get_ydata()) == [0, 0.5]
    (ours,) = (each for each in drawn if each.get_label() == "Specformer")
    np.testing.assert_array_equal(ours.get_xydata(), rows[:, :2])


def test_accuracy_plot_has_the_first_model_on_top_with_its_interval():
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


def test_large_numbers_have_commas_and_room() -> None:
    """At 8.5 points a digit is about 5.4 points wide, and the panel has 170."""
    measured = np.linspace(-150_000, 399_940, 20)
    axis = agreement_plot(measured, measured, OURS).axes[0]
    axis.figure.canvas.draw()
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert "200,000" in labels
    assert 5.4 * sum(map(len, labels)) < 170
