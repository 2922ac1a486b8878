"""Variable projection: the read-out against NumPy's least squares, the model as it is saved."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.training.small_signals import (
    RUNS,
    SPECTRUM,
    baselines,
    make_task,
    operator_of,
    specformers,
)
from tests.undropped import undropped

from specformer import Specformer
from specformer.errors import ConfigError
from specformer.nn.filter.tokens import encoded
from specformer.training.engine.stacking import stack, unstack
from specformer.training.loops.signals import fit_signals
from specformer.training.optim.schedule import Schedule
from specformer.training.optim.variable_projection import ProjectedReadout

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
    hidden = encoded(filt.encoder, filt.decoder, TOKENS, points, None)[0].detach().numpy()
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
    model = stack(specformers())
    left = {id(parameter) for parameter in ProjectedReadout(model, *problem()).parameters()}
    named = {name for name, parameter in model.named_parameters() if id(parameter) in left}
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
