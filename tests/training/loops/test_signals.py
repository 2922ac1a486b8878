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
from tests.undropped import undropped
from torch import nn

from specformer import Specformer
from specformer.datasets import target_filter
from specformer.errors import ConfigError, RunError
from specformer.nn.tokens import encoded
from specformer.training.engine.stacking import stack, unstack
from specformer.training.loops.signals import (
    ProjectedReadout,
    SignalFit,
    SignalTask,
    _make_loss,
    fit_signals,
)
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
    said = r"diverged: runs 3, 4 of 4 have .* epoch 1 on, first in .* signals smaller than 1e\+200"
    with pytest.raises(RunError, match=said):
        fit_signals(models, far, operator_of(models), Schedule(epochs=3))


TOKENS = SPECTRUM.distinct.tokens
POINTS = len(TOKENS.values)


def problem() -> tuple[torch.Tensor, torch.Tensor]:
    """Weights over four orders of magnitude, as images have them, and gains to reach."""
    generator = torch.Generator().manual_seed(1)
    energy = 10 ** (-4 * torch.rand(RUNS, POINTS, generator=generator, dtype=torch.float64))
    return energy, torch.rand(RUNS, POINTS, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("landmarks", [None, 4])
def test_readout_is_numpys_least_squares(landmarks):
    energy, targets = problem()
    model = stack(specformers())
    readout = ProjectedReadout(model, energy, targets)
    points = SPECTRUM.landmarks(landmarks) if landmarks else None
    gains = readout.gains(TOKENS, points).detach().numpy()
    filt = model.filters[0]
    hidden = encoded(filt.encoder, TOKENS, points)[0].detach().numpy()
    for run in range(RUNS):
        features = np.column_stack([np.ones(POINTS), hidden[run]])
        root = np.sqrt(energy[run].numpy())[:, None]
        theta, *_ = np.linalg.lstsq(root * features, root[:, 0] * targets[run].numpy(), rcond=None)
        weighted = root[:, 0] * (gains[run] - features @ theta)
        assert np.abs(weighted).max() < 1e-5
        best = (root[:, 0] * (features @ theta - targets[run].numpy())) @ (
            root[:, 0] * (features @ theta - targets[run].numpy())
        )
        found = (energy[run].numpy() * (gains[run] - targets[run].numpy()) ** 2).sum()
        assert found == pytest.approx(best, rel=1e-6)


def test_the_model_as_it_stands_gives_the_gains():
    model = stack(specformers())
    gains = ProjectedReadout(model, *problem()).gains(TOKENS, None)
    torch.testing.assert_close(model.linear_response(TOKENS)[..., 0, 0], gains)


def test_only_the_encoder_is_left_to_train():
    model, task = stack(specformers()), make_task()
    _, left = _make_loss(model, task, SPECTRUM, None, solve_readout=True)
    named = {name for name, each in model.named_parameters() if any(each is one for one in left)}
    assert named == {name for name, _ in model.named_parameters() if ".encoder." in name}


def test_the_gradient_is_that_of_what_is_left():
    """Golub and Pereyra: at the solution the read-out's own change contributes nothing."""
    energy, targets = problem()
    model = stack(specformers())
    readout = ProjectedReadout(model, energy, targets)

    def loss() -> torch.Tensor:
        return (energy * (readout.gains(TOKENS, None) - targets).square()).sum()

    weight = model.filters[0].encoder.embedding.weight
    (gradient,) = torch.autograd.grad(loss(), [weight])
    step = 1e-6
    for index in ((0, 0, 0), (1, 3, 2), (3, 7, 8)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[index] += sign * step
                values.append(loss().item())
                weight[index] -= sign * step
        measured = (values[0] - values[1]) / (2 * step)
        assert gradient[index].item() == pytest.approx(measured, rel=1e-3, abs=1e-6)


def test_saved_models_reproduce_the_fit(tmp_path):
    task, models = make_task(), [model.float() for model in specformers()]
    task = type(task)(
        SPECTRUM.to(dtype=torch.float32), task.signals.float(), task.responses.float(), task.mask
    )
    fit = fit_signals(models, task, task.spectrum, Schedule(epochs=20), solve_readout=True)
    for run in range(RUNS):
        unstack(fit.model, run, models[run]).save_pretrained(tmp_path / str(run))
        loaded = Specformer.from_pretrained(tmp_path / str(run))
        with torch.no_grad():
            output = loaded(task.inputs()[run], task.spectrum).squeeze(-1)
        torch.testing.assert_close(output, fit.output[run], rtol=1e-4, atol=1e-5)


def test_never_above_plain_training():
    task = make_task("all")
    schedule = Schedule(epochs=40, learning_rate=0.01)
    plain = fit_signals(specformers(), task, SPECTRUM, schedule)
    solved = fit_signals(specformers(), task, SPECTRUM, schedule, solve_readout=True)
    # At the start both have the same encoder, and one of them the best read-out for it.
    assert (solved.curves[0] <= plain.curves[0]).all()
    assert (solved.sse <= plain.sse).all()
    assert (solved.sse < solved.curves[0]).all()


def test_the_loss_bounds_the_error_over_the_mask():
    task = make_task("inner")
    fit = fit_signals(specformers(), task, SPECTRUM, Schedule(epochs=10), solve_readout=True)
    assert (fit.sse <= fit.curves.nan_to_num(torch.inf).amin(dim=0) * (1 + 1e-6)).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"num_layers": 2},
        {"num_heads": 2},
        {"decoder": "heads"},
        {"bias": True},
        {"activation": "relu"},
        {"norm": "layer"},
        {"space": "output"},
        {"bases": "ffn"},
    ],
    ids=str,
)
def test_unsupported_models_are_refused(settings):
    usual = {"num_layers": 1, "num_heads": 1, "space": "hidden", "bias": False}
    models = [undropped(1, 8, 1, **{**usual, **settings}).double() for _ in range(RUNS)]
    with pytest.raises(ConfigError, match="variable projection needs"):
        ProjectedReadout(stack(models), *problem())
    with pytest.raises(ConfigError, match="variable projection needs"):
        fit_signals(models, make_task(), SPECTRUM, Schedule(epochs=1), solve_readout=True)


def test_baselines_are_refused():
    models = baselines()
    with pytest.raises(ConfigError, match="variable projection needs"):
        fit_signals(
            models, make_task(), operator_of(models), Schedule(epochs=1), solve_readout=True
        )
