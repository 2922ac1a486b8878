"""Learning filters: the fast losses against dense matrices, all runs at once against each alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.small_signals import (
    FILTERS,
    RUNS,
    SPECTRUM,
    baselines,
    make_task,
    operator_of,
    specformers,
)
from torch import nn

from specformer.datasets import target_filter
from specformer.errors import ConfigError, RunError
from specformer.training.engine.stacking import unstack
from specformer.training.loops.signals import SignalFit, SignalTask, fit_signals
from specformer.training.optim.schedule import Schedule

U = SPECTRUM.eigenvectors.numpy()


def one_run(task: SignalTask, run: int) -> SignalTask:
    signal, response = divmod(run, task.num_filters)
    return replace(
        task,
        signals=task.signals[signal : signal + 1],
        responses=task.responses[response : response + 1],
    )


def truth(task: SignalTask) -> np.ndarray:
    """U diag(g) Uᵀ x of every run, in NumPy, from the filters' formulas at all eigenvalues."""
    rows = []
    for run in range(task.runs):
        signal, response = divmod(run, task.num_filters)
        gains = target_filter(FILTERS[response])(SPECTRUM.eigenvalues).numpy()
        rows.append(U @ np.diag(gains) @ U.T @ task.signals[signal].numpy())
    return np.stack(rows)


def masked_sse(output: np.ndarray, task: SignalTask) -> np.ndarray:
    mask = task.mask.numpy()
    return ((output - truth(task))[:, mask] ** 2).sum(axis=1)


def outputs(models: list[nn.Module], task: SignalTask) -> np.ndarray:
    """What the models themselves give, one at a time."""
    with torch.no_grad():
        return np.stack(
            [
                model(task.inputs()[run], operator_of(models)).squeeze(-1).numpy()
                for run, model in enumerate(models)
            ]
        )


def singles(fit: SignalFit, models: list[nn.Module]) -> list[nn.Module]:
    return [unstack(fit.model, run, models[run]) for run in range(RUNS)]


def test_the_grid_has_repeated_eigenvalues():
    assert len(SPECTRUM.distinct.values) < SPECTRUM.num_eigenpairs == 25


def test_runs_are_signal_major_and_targets_dense():
    task = make_task()
    assert task.runs == RUNS
    np.testing.assert_allclose(task.targets().numpy(), truth(task), atol=1e-12)
    for run in range(RUNS):
        alone = one_run(task, run)
        torch.testing.assert_close(alone.inputs()[0], task.inputs()[run])
        torch.testing.assert_close(alone.targets()[0], task.targets()[run])


@pytest.mark.parametrize("mask", ["inner", "all"])
@pytest.mark.parametrize("make", [specformers, baselines])
def test_first_loss_is_the_masked_squared_error(make, mask):
    task, models = make_task(mask), make()
    fit = fit_signals(models, task, operator_of(models), Schedule(epochs=1))
    expected = masked_sse(outputs(models, task), task)
    np.testing.assert_allclose(fit.curves[0].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(fit.sse.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("make", [specformers, baselines])
def test_training_is_adam_on_that_error(make):
    """The whole loop against one written down plainly: one model, dense matrices, floats."""
    task, models = make_task(), make()
    fit = fit_signals(models, task, operator_of(models), Schedule(epochs=15, learning_rate=0.02))
    for run, model in enumerate(make()):
        adam = torch.optim.Adam(model.parameters(), lr=0.02)
        target = torch.as_tensor(truth(task)[run])
        losses = []
        for _ in range(15):
            adam.zero_grad()
            output = model(task.inputs()[run], operator_of(models)).squeeze(-1)
            loss = (output - target)[task.mask].square().sum()
            losses.append(loss.item())
            loss.backward()
            adam.step()
        np.testing.assert_allclose(fit.curves[:, run].numpy(), losses, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (specformers, {}),
        (specformers, {"landmarks": 5}),
        (specformers, {"solve_readout": True}),
        (baselines, {}),
    ],
)
def test_runs_together_are_runs_alone(make, options):
    task, models = make_task(), make()
    schedule = Schedule(epochs=25, patience=5, learning_rate=0.05)
    together = fit_signals(models, task, operator_of(models), schedule, **options)
    for run, model in enumerate(make()):
        alone = fit_signals([model], one_run(task, run), operator_of(models), schedule, **options)
        torch.testing.assert_close(together.sse[run], alone.sse[0], rtol=1e-5, atol=1e-10)
        torch.testing.assert_close(together.output[run], alone.output[0], rtol=1e-5, atol=1e-6)
        assert together.epochs[run] == alone.epochs[0]
        assert together.best_epoch[run] == alone.best_epoch[0]


@pytest.mark.parametrize("make", [specformers, baselines])
def test_what_is_reported_is_what_the_models_give(make):
    task, models = make_task(), make()
    fit = fit_signals(models, task, operator_of(models), Schedule(epochs=30))
    found = outputs(singles(fit, models), task)
    np.testing.assert_allclose(fit.output.numpy(), found, atol=1e-10)
    np.testing.assert_allclose(fit.sse.numpy(), masked_sse(found, task), rtol=1e-8)
    wanted = truth(task)[:, task.mask.numpy()]
    spread = ((wanted - wanted.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    np.testing.assert_allclose(fit.r2.numpy(), 1 - fit.sse.numpy() / spread, rtol=1e-9)
    assert (fit.sse.numpy() < masked_sse(outputs(models, task), task)).all()
    best = np.nanmin(fit.curves.numpy(), axis=0)
    np.testing.assert_allclose(fit.sse.numpy(), best, rtol=1e-5)


def test_landmarks_train_but_never_measure():
    task, models = make_task(), specformers()
    fit = fit_signals(models, task, SPECTRUM, Schedule(epochs=20), landmarks=2)
    exact = masked_sse(outputs(singles(fit, models), task), task)
    np.testing.assert_allclose(fit.sse.numpy(), exact, rtol=1e-9)
    trained = np.nanmin(fit.curves.numpy(), axis=0)
    assert (np.abs(trained / exact - 1) > 1e-4).any()  # two points are too few to be exact


def test_as_many_landmarks_as_tokens_change_nothing():
    task = make_task()
    curves = [
        fit_signals(specformers(), task, SPECTRUM, Schedule(epochs=5), landmarks=count).curves
        for count in (None, 25, 1000)
    ]
    assert torch.equal(curves[0], curves[1])
    assert torch.equal(curves[0], curves[2])


def test_runs_stop_one_by_one():
    task, models = make_task(), specformers()
    # A rate too high to settle: losses soon go up and down.
    schedule = Schedule(epochs=250, patience=4, learning_rate=0.1)
    fit = fit_signals(models, task, SPECTRUM, schedule)
    curves = fit.curves.numpy()
    for run in range(RUNS):
        losses = curves[: int(fit.epochs[run]), run]
        assert not np.isnan(losses).any()
        assert np.isnan(curves[int(fit.epochs[run]) :, run]).all()
        best, best_epoch = math.inf, 0
        for epoch, loss in enumerate(losses):
            if loss < best:
                best, best_epoch = loss, epoch
        assert fit.best_epoch[run] == best_epoch
        assert fit.epochs[run] == best_epoch + 4 + 1
    assert len(set(fit.epochs.tolist())) > 1
    assert len(curves) == 100  # noticed at the next reading, not after all 250


def test_one_model_for_several_runs_is_refused():
    models, task = specformers(), make_task()
    with pytest.raises(ConfigError, match=f"1 models for {task.runs} runs; pass one per run"):
        fit_signals(models[:1], task, operator_of(models), Schedule(epochs=1))


def test_progress_is_told():
    told = []
    schedule = Schedule(epochs=130)
    fit_signals(
        specformers(), make_task(), SPECTRUM, schedule, on_progress=lambda *one: told.append(one)
    )
    assert [done for done, _ in told] == [100, 130]
    assert all(math.isfinite(figure) for _, figure in told)


def test_progress_is_a_number_when_all_runs_have_stopped():
    told = []
    schedule = Schedule(epochs=300, patience=3, learning_rate=3.0)
    fit = fit_signals(
        specformers(), make_task(), SPECTRUM, schedule, on_progress=lambda *one: told.append(one)
    )
    assert fit.curves[-1].isnan().all()  # no run trains in the last epoch that is read
    lowest = fit.curves.nan_to_num(nan=math.inf).amin(dim=0)
    assert told[-1][1] == pytest.approx(float(lowest.mean()))


def test_a_nonlinear_specformer_trains_in_space():
    models = specformers(activation="relu")
    task = make_task()
    fit = fit_signals(models, task, SPECTRUM, Schedule(epochs=1))
    expected = masked_sse(outputs(models, task), task)
    np.testing.assert_allclose(fit.curves[0].numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("make", [specformers, baselines])
def test_signals_whose_squares_are_no_numbers_are_refused(make) -> None:
    task, models = make_task(), make()
    far = replace(task, signals=task.signals * torch.tensor([[1.0], [1e200]], dtype=torch.float64))
    said = r"diverged: runs 3, 4 of 4 have no model.* epoch 1 on.* signals smaller than 1e\+200"
    with pytest.raises(RunError, match=said):
        fit_signals(models, far, operator_of(models), Schedule(epochs=3))
