"""Metrics against scikit-learn, and against OGB's evaluators where OGB is installed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn

from specformer.errors import ConfigError
from specformer.training.evaluation.graph_metrics import (
    METRICS,
    average_precision,
    metric_named,
    rocauc,
)

RANDOM = np.random.default_rng(0)


def classes(tasks: int, graphs: int = 200, missing: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Predictions with many ties, and targets with missing ones and tasks of a single class."""
    predictions = RANDOM.standard_normal((graphs, tasks)).round(1)
    targets = (RANDOM.random((graphs, tasks)) < 0.3).astype(float)
    targets[RANDOM.random(targets.shape) < missing] = np.nan
    if tasks > 3:
        targets[:, 1] = np.where(np.isnan(targets[:, 1]), np.nan, 0.0)
        targets[:, 2] = np.where(np.isnan(targets[:, 2]), np.nan, 1.0)
        targets[:, 3] = np.nan
    return predictions, targets


@pytest.mark.parametrize("tasks", [1, 6])
@pytest.mark.parametrize(
    ("name", "oracle"),
    [("rocauc", sklearn.roc_auc_score), ("ap", sklearn.average_precision_score)],
)
def test_ranking_metrics_are_scikit_learns(name, oracle, tasks: int) -> None:
    predictions, targets = classes(tasks)
    expected = []
    for task in range(tasks):
        known = ~np.isnan(targets[:, task])
        if len(np.unique(targets[known, task])) == 2:
            expected.append(oracle(targets[known, task], predictions[known, task]))
        else:
            expected.append(None)
    each = metric_named(name).each(predictions, targets)
    assert each == [None if x is None else pytest.approx(x, abs=1e-12) for x in expected]
    counted = [x for x in expected if x is not None]
    assert metric_named(name)(predictions, targets) == pytest.approx(np.mean(counted), abs=1e-12)


def test_infinite_predictions_share_their_rank() -> None:
    """As scikit-learn, which takes no infinities, has it for the largest number instead."""
    predictions, targets = np.array([np.inf, np.inf, 0.0]), np.array([1.0, 0.0, 0.0])
    for own, oracle in (
        (average_precision, sklearn.average_precision_score),
        (rocauc, sklearn.roc_auc_score),
    ):
        expected = oracle(targets, np.nan_to_num(predictions))
        assert own(predictions, targets) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("mae", sklearn.mean_absolute_error),
        ("rmse", sklearn.root_mean_squared_error),
        ("r2", sklearn.r2_score),
    ],
)
def test_errors_are_scikit_learns(name, oracle) -> None:
    predictions, targets = RANDOM.standard_normal((2, 50, 3))
    targets[RANDOM.random(targets.shape) < 0.2] = np.nan
    expected = [
        oracle(targets[known, task], predictions[known, task])
        for task, known in enumerate(~np.isnan(targets).T)
    ]
    assert metric_named(name)(predictions, targets) == pytest.approx(np.mean(expected))


def test_accuracy_is_scikit_learns() -> None:
    predictions, targets = classes(1, missing=0.0)
    expected = sklearn.accuracy_score(targets, predictions > 0)
    assert metric_named("accuracy")(predictions, targets) == pytest.approx(expected)


@pytest.mark.parametrize("count", [2, 5])
def test_macro_f1_is_scikit_learns(count: int) -> None:
    predictions = RANDOM.standard_normal((90, 1 if count == 2 else count))
    targets = RANDOM.integers(0, count, (90, 1)).astype(float)
    chosen = predictions[:, 0] > 0 if count == 2 else predictions.argmax(axis=1)
    expected = sklearn.f1_score(targets[:, 0], chosen, average="macro")
    assert metric_named("f1")(predictions, targets) == pytest.approx(expected)


def test_accuracy_of_several_classes_is_scikit_learns() -> None:
    predictions = RANDOM.standard_normal((90, 4))
    targets = RANDOM.integers(0, 4, (90, 1)).astype(float)
    targets[RANDOM.random(90) < 0.2] = np.nan
    known = ~np.isnan(targets[:, 0])
    expected = sklearn.accuracy_score(targets[known, 0], predictions[known].argmax(axis=1))
    metric = metric_named("accuracy")
    assert metric(predictions, targets) == pytest.approx(expected)
    assert metric.each(predictions, targets) == [pytest.approx(expected)]
    with pytest.raises(ValueError, match="predictions"):
        metric_named("rocauc")(predictions, targets)


@pytest.mark.parametrize(
    ("name", "key", "tasks", "dataset"),
    [("rocauc", "rocauc", 1, "ogbg-molhiv"), ("ap", "ap", 128, "ogbg-molpcba")],
)
def test_ogb_agrees(name, key, tasks: int, dataset: str) -> None:
    evaluation = pytest.importorskip("ogb.graphproppred")
    predictions, targets = classes(tasks)
    found = evaluation.Evaluator(dataset).eval({"y_true": targets, "y_pred": predictions})
    assert metric_named(name)(predictions, targets) == pytest.approx(found[key], abs=1e-12)


def test_a_hand_made_case() -> None:
    predictions = np.array([[3.0], [1.0], [1.0], [-2.0]])
    targets = np.array([[1.0], [1.0], [0.0], [0.0]])
    assert metric_named("rocauc")(predictions, targets) == 3.5 / 4  # one tie of the four pairs
    assert metric_named("ap")(predictions, targets) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert metric_named("accuracy")(predictions, targets) == 0.75


def test_less_is_better_only_for_errors() -> None:
    assert [name for name, metric in METRICS.items() if metric.lower] == ["mae", "rmse"]
    assert metric_named("rocauc").score(0.7) == -0.7


@pytest.mark.parametrize("name", ["rocauc", "ap"])
def test_one_class_alone_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"both classes in every .*; --metric accuracy does not"):
        metric_named(name)(np.zeros((3, 1)), np.array([[1.0], [1.0], [np.nan]]))


def test_shapes_must_match() -> None:
    with pytest.raises(ValueError, match="predictions"):
        metric_named("mae")(np.zeros((3, 1)), np.zeros(3))


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'f2'"):
        metric_named("f2")
