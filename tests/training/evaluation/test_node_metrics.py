"""Figures of all runs at once against scikit-learn's, run by run and part by part."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn

from specformer.training.engine.capture import Repeated
from specformer.training.evaluation.node_objectives import NodeTask

RUNS, NODES, TARGETS = 3, 120, 4
RANDOM = np.random.default_rng(0)
parts = RANDOM.integers(0, 3, (RUNS, NODES))
TRAIN, VAL, TEST = (torch.as_tensor(parts == part) for part in range(3))
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def task(loss: str, metric: str, y: torch.Tensor, dtype: torch.dtype) -> NodeTask:
    """It is judged by its outputs alone, not by its features."""
    masks = (mask.to(y.device) for mask in (TRAIN, VAL, TEST))
    return NodeTask(torch.zeros(NODES, 0, dtype=dtype), y, *masks, loss, metric)


def judged(loss: str, metric: str, y: torch.Tensor, outputs: torch.Tensor) -> np.ndarray:
    """Losses and figures ``[2, validation and test, runs]``."""
    found = task(loss, metric, y, outputs.dtype).evaluate(outputs)
    assert found.dtype == outputs.dtype
    return found.numpy()


def each_part():
    for part, masks in enumerate((VAL, TEST)):
        for run, mask in enumerate(masks.numpy()):
            yield part, run, mask


def outputs_of(channels: int, dtype: torch.dtype) -> torch.Tensor:
    """Many of which are equal."""
    return torch.as_tensor(RANDOM.standard_normal((RUNS, NODES, channels)).round(1)).to(dtype)


@dtypes
@pytest.mark.parametrize(
    ("metric", "oracle"),
    [("rocauc", sklearn.roc_auc_score), ("ap", sklearn.average_precision_score)],
)
def test_two_classes_are_ranked_as_scikit_learn_does(metric, oracle, dtype):
    y, outputs = torch.as_tensor(RANDOM.integers(0, 2, NODES)), outputs_of(2, dtype)
    losses, figures = judged("ce", metric, y, outputs)
    for part, run, mask in each_part():
        scores = (outputs[run, :, 1] - outputs[run, :, 0]).numpy()[mask]
        assert figures[part, run] == pytest.approx(oracle(y.numpy()[mask], scores), abs=1e-6)
        expected = torch.nn.functional.cross_entropy(outputs[run, mask], y[mask])
        assert losses[part, run] == pytest.approx(float(expected), rel=1e-5)


def test_macro_f1_is_scikit_learns():
    y, outputs = torch.as_tensor(RANDOM.integers(0, 5, NODES)), outputs_of(6, torch.float64)
    outputs[0, :, 4] -= 9.0  # a class that is never predicted, beside one that is never there
    figures = judged("ce", "f1", y, outputs)[1]
    for part, run, mask in each_part():
        chosen = outputs[run].argmax(dim=-1).numpy()[mask]
        expected = sklearn.f1_score(y.numpy()[mask], chosen, average="macro")
        assert figures[part, run] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "oracle"),
    [
        ("rocauc", sklearn.roc_auc_score),
        ("ap", sklearn.average_precision_score),
        ("accuracy", lambda true, scores: np.mean((scores > 0) == (true == 1))),
    ],
)
def test_several_labels_are_judged_one_by_one(metric, oracle):
    y = (RANDOM.random((NODES, TARGETS)) < 0.4).astype(np.float32)
    y[:, 1] = 1.0  # without both classes there is nothing to rank
    y[RANDOM.random(y.shape) < 0.3] = np.nan
    outputs = outputs_of(TARGETS, torch.float64)
    losses, figures = judged("bce", metric, torch.as_tensor(y), outputs)
    for part, run, mask in each_part():
        found, errors = [], []
        for target in range(TARGETS):
            known = mask & ~np.isnan(y[:, target])
            true, scores = y[known, target], outputs[run, known, target].numpy()
            if metric == "accuracy" or target != 1:
                found.append(oracle(true, scores))
            errors += np.logaddexp(0, np.where(true == 1, -scores, scores)).tolist()
        assert figures[part, run] == pytest.approx(np.mean(found), abs=1e-12)
        assert losses[part, run] == pytest.approx(np.mean(errors), rel=1e-6)


@dtypes
@pytest.mark.parametrize("loss", ["mse", "l1"])
@pytest.mark.parametrize(
    ("metric", "oracle"),
    [
        ("mae", sklearn.mean_absolute_error),
        ("rmse", sklearn.root_mean_squared_error),
        ("r2", sklearn.r2_score),
    ],
)
def test_numbers_are_judged_in_their_own_units(metric, oracle, loss, dtype):
    y = RANDOM.standard_normal((NODES, TARGETS)) * [1.0, 30.0, 1e-3, 5.0] + [0.0, 1e4, 2.0, -3.0]
    y[RANDOM.random(y.shape) < 0.2] = np.nan
    outputs = outputs_of(TARGETS, dtype)
    told = (
        task(loss, metric, torch.as_tensor(y).to(dtype), dtype)
        .predictions(outputs)
        .double()
        .numpy()
    )
    losses, figures = judged(loss, metric, torch.as_tensor(y).to(dtype), outputs)
    for part, run, mask in each_part():
        found, errors = [], []
        for target in range(TARGETS):
            known = mask & ~np.isnan(y[:, target])
            fitted = TRAIN[run].numpy() & ~np.isnan(y[:, target])
            mean, std = y[fitted, target].mean(), y[fitted, target].std()
            expected = outputs[run, :, target].double().numpy() * std + mean
            assert told[run, :, target] == pytest.approx(expected, rel=1e-3)
            found.append(oracle(y[known, target], expected[known]))
            off = outputs[run, known, target].double().numpy() - (y[known, target] - mean) / std
            errors += (np.abs(off) if loss == "l1" else off**2).tolist()
        close = {"rel": 1e-9} if dtype == torch.float64 else {"rel": 2e-3}
        assert figures[part, run] == pytest.approx(np.mean(found), **close)
        assert losses[part, run] == pytest.approx(np.mean(errors), **close)


@pytest.mark.parametrize("loss", ["ce", "bce", "mse", "l1"])
def test_terms_and_weights_are_the_mean_loss_and_its_gradient(loss):
    y = torch.as_tensor(RANDOM.integers(0, 2, (NODES, TARGETS))).double()
    y[::7, 1] = torch.nan
    y = y[:, 0].long() if loss == "ce" else y
    objective = task(loss, "", y, torch.float64)
    outputs = outputs_of(TARGETS, torch.float64).requires_grad_()
    terms, counted = objective.terms(outputs), objective.counted(TRAIN)
    weights = objective.weights(terms)
    means = (objective.errors(outputs) * counted).sum((1, 2)) / counted.sum((1, 2))
    torch.testing.assert_close((terms * weights).sum(dim=(-2, -1)), means)
    (expected,) = torch.autograd.grad(means.sum(), outputs, retain_graph=True)
    (found,) = torch.autograd.grad(terms, outputs, weights)
    torch.testing.assert_close(found, expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    ("loss", "metric"),
    [("ce", "rocauc"), ("ce", "ap"), ("ce", "f1"), ("bce", "rocauc"), ("mse", "r2"), ("l1", "mae")],
)
def test_captured_figures_are_those_of_a_cpu(loss, metric):
    device, targets = torch.device("cuda"), 2
    y = torch.as_tensor(RANDOM.integers(0, 2, (NODES, targets))).float()
    y = y[:, 0].long() if loss == "ce" else y
    first, second = outputs_of(targets, torch.float64), outputs_of(targets, torch.float64)
    judge = task(loss, metric, y.to(device), first.dtype).evaluate
    outputs = first.to(device)
    found = torch.zeros(2, 2, RUNS, dtype=first.dtype, device=device)
    captured = Repeated(lambda: found.copy_(judge(outputs)), device)
    for _ in range(6):
        captured()
    outputs.copy_(second)
    captured()
    assert found.cpu().numpy() == pytest.approx(judged(loss, metric, y, second), abs=1e-9)


def test_parts_of_the_nodes_are_those_of_all():
    y = torch.as_tensor(RANDOM.standard_normal((NODES, TARGETS)))
    objective = task("mse", "mae", y, torch.float64)
    outputs, nodes = outputs_of(TARGETS, torch.float64), torch.tensor([5, 3, 90])
    torch.testing.assert_close(
        objective.errors(outputs[:, nodes], nodes), objective.errors(outputs)[:, nodes]
    )
    assert torch.equal(objective.counted(VAL, nodes), objective.counted(VAL)[:, nodes])
