"""Many models as one: the same outputs, gradients and training as each alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import SPECTRA, scrambled
from tests.undropped import undropped
from torch import nn

from specformer import Specformer
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.training.engine.stacking import WeightAverage, stack, trained_state, unstack

RUNS = 3
KINDS = {
    "default": {},
    "small": {"sharing": "small"},
    "large": {"sharing": "large", "decoder": "heads", "num_blocks": 2},
    "ffn": {"bases": "ffn"},
    "hidden": {
        "space": "hidden",
        "transform": True,
        "norm": "layer",
        "activation": "relu",
        "residual": True,
    },
    "deep": {"form": "deep", "num_layers": 3},
    "without bias": {"space": "hidden", "bias": False, "transform": True},
}
kinds = pytest.mark.parametrize("kind", KINDS)


def models_of(kind: str) -> list[Specformer]:
    return [scrambled(undropped(3, 8, 4, num_heads=2, **KINDS[kind]), run) for run in range(RUNS)]


def assert_same_gradients(stacked: Specformer, models: list[Specformer]) -> None:
    alone = [dict(model.named_parameters()) for model in models]
    for name, parameter in stacked.named_parameters():
        expected = torch.stack([parameters[name].grad for parameters in alone])
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-10, msg=name)


@kinds
@pytest.mark.parametrize("own_input", [False, True])
@pytest.mark.parametrize("landmarks", [None, 3])
@pytest.mark.parametrize("name", ["star", "cut"])
def test_a_stack_is_each_model_alone(kind: str, own_input: bool, landmarks, name: str) -> None:
    spectrum = SPECTRA[name]
    points = spectrum.landmarks(landmarks) if landmarks else None
    models = models_of(kind)
    shape = (spectrum.num_nodes, 3)
    x = random(RUNS, *shape) if own_input else random(*shape)
    inputs = x if own_input else x.expand(RUNS, *shape)
    stacked = stack(models)
    out = stacked(x, spectrum, points)
    expected = torch.stack(
        [model(x, spectrum, points) for model, x in zip(models, inputs, strict=True)]
    )
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-11)
    cotangent = random(*out.shape, seed=1)
    (out * cotangent).sum().backward()
    (expected * cotangent).sum().backward()
    assert_same_gradients(stacked, models)


def test_linear_response_of_a_stack() -> None:
    models = models_of("without bias")
    tokens = SPECTRA["star"].distinct.tokens
    expected = torch.stack([model.linear_response(tokens) for model in models])
    torch.testing.assert_close(stack(models).linear_response(tokens), expected)


@kinds
def test_adam_trains_each_as_if_alone(kind: str) -> None:
    spectrum, x, target = SPECTRA["star"], random(7, 3), random(RUNS, 7, 4, seed=3)
    models = models_of(kind)
    stacked = stack(models)
    optimiser = torch.optim.Adam(stacked.parameters(), lr=1e-2)
    for _ in range(5):
        optimiser.zero_grad()
        (stacked(x, spectrum) - target).square().sum().backward()
        optimiser.step()
    for run, model in enumerate(models):
        alone = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(5):
            alone.zero_grad()
            (model(x, spectrum) - target[run]).square().sum().backward()
            alone.step()
        single = unstack(stacked, run, template=models[0])
        torch.testing.assert_close(single(x, spectrum), model(x, spectrum), rtol=0, atol=1e-6)


@kinds
def test_unstack_gives_the_models_back(kind: str) -> None:
    models = models_of(kind)
    stacked = stack(models)
    for run, model in enumerate(models):
        single = unstack(stacked, run, template=models[0])
        for name, parameter in model.named_parameters():
            assert torch.equal(single.get_parameter(name), parameter)


@kinds
def test_originals_are_left_alone(kind: str) -> None:
    models = models_of(kind)
    before = [{k: v.clone() for k, v in model.state_dict().items()} for model in models]
    with torch.no_grad():
        for parameter in stack(models).parameters():
            parameter.zero_()
    for model, state in zip(models, before, strict=True):
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name])


@pytest.mark.parametrize("which", ["transformer", "feature", "propagation"])
def test_dropout_differs_between_runs(which: str) -> None:
    model = scrambled(undropped(3, 8, 4, **{f"{which}_dropout": 0.5}))
    stacked = stack([model, model])
    x = random(2, 7, 3)
    x[1] = x[0]
    one, other = stacked(x, SPECTRA["star"])
    assert not torch.equal(one, other)
    stacked.eval()
    one, other = stacked(x, SPECTRA["star"])
    assert torch.equal(one, other)


BATCH_NORM = {
    "space": "hidden",
    "transform": True,
    "norm": "batch",
    "activation": "relu",
    "residual": True,
}


def batch_norm_models() -> list[Specformer]:
    return [
        scrambled(undropped(3, 8, 4, num_heads=2, num_layers=2, **BATCH_NORM), run)
        for run in range(RUNS)
    ]


def test_batch_norms_train_each_as_if_alone() -> None:
    """By SGD: Adam blows up the rounding of gradients that are 0, as of a bias before a norm."""
    spectrum, x, target = SPECTRA["star"], random(7, 3), random(RUNS, 7, 4, seed=3)
    models = batch_norm_models()
    stacked = stack(models)
    before = {name: tensor.detach().clone() for name, tensor in trained_state(stacked).items()}
    optimiser = torch.optim.SGD(stacked.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(20):
        optimiser.zero_grad()
        (stacked(x, spectrum) - target).square().sum().backward()
        optimiser.step()
    # The running averages moved, in each run its own way.
    for name, tensor in trained_state(stacked).items():
        if "running" in name:
            assert tensor.shape == (RUNS, 8)
            assert not torch.equal(tensor, before[name])
            assert not torch.equal(tensor[0], tensor[1])
    for run, model in enumerate(models):
        alone = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        for _ in range(20):
            alone.zero_grad()
            (model(x, spectrum) - target[run]).square().sum().backward()
            alone.step()
        single = unstack(stacked, run, template=models[0])
        for name, tensor in trained_state(model).items():
            torch.testing.assert_close(
                trained_state(single)[name], tensor, rtol=1e-9, atol=1e-10, msg=name
            )
        torch.testing.assert_close(
            single.eval()(x, spectrum), model.eval()(x, spectrum), rtol=1e-9, atol=1e-9
        )
    stacked.eval()
    torch.testing.assert_close(
        stacked(x, spectrum), torch.stack([model(x, spectrum) for model in models])
    )


def test_only_running_averages_are_stacked_of_the_buffers() -> None:
    models = batch_norm_models()
    stacked = stack(models)
    averages = {name for name in trained_state(stacked) if "running" in name}
    assert len(averages) == 4  # two layers, mean and variance
    for name, buffer in stacked.named_buffers():
        plain = models[0].get_buffer(name)
        assert buffer.shape == ((RUNS, *plain.shape) if name in averages else plain.shape), name
    assert any(name not in averages for name, _ in stacked.named_buffers())


def test_running_averages_of_the_originals_are_left_alone() -> None:
    models = batch_norm_models()
    before = [{k: v.clone() for k, v in model.state_dict().items()} for model in models]
    stack(models)(random(7, 3), SPECTRA["star"])
    for model, state in zip(models, before, strict=True):
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name])


def test_it_is_the_mean_at_first_and_then_forgets() -> None:
    model = nn.Sequential(nn.Linear(2, 3), BatchNorm(3)).double()
    average = WeightAverage(model, window=4)
    expected = {}
    for step in range(9):
        model.train()(torch.randn(8, 2).double()).square().sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update(torch.tensor(step))
        for name, tensor in model.state_dict().items():
            now, before = tensor.detach().numpy().copy(), expected.get(name, 0.0)
            expected[name] = before + (now - before) / min(step + 1, 4)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
        found = average.model.state_dict()[name].numpy()
        np.testing.assert_allclose(found, expected[name], rtol=1e-12)
        assert not np.allclose(found, model.state_dict()[name].numpy())
    average.settle()
    for name, tensor in average.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_its_copy_leaves_the_model_alone() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    average = WeightAverage(model, window=2)
    average.update(torch.tensor(0))
    assert torch.equal(model.weight, before)
    assert average.model.weight.data_ptr() != model.weight.data_ptr()
