"""The two layers that may carry a run axis: torch's own without it, one layer a run with it."""

from __future__ import annotations

import pytest
import torch
from tests.nn.plain_twin import BOTH_DTYPES, random

from specformer.nn.linear import LayerNorm, Linear
from specformer.training.stacking import stack


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_torchs(dtype: torch.dtype, bias: bool) -> None:
    ours, theirs = Linear(3, 5, bias).to(dtype), torch.nn.Linear(3, 5, bias, dtype=dtype)
    theirs.load_state_dict(ours.state_dict())
    x = random(2, 7, 3, dtype=dtype)
    torch.testing.assert_close(ours(x), theirs(x))


def test_layer_norm_is_torchs() -> None:
    ours, theirs = LayerNorm(6).double(), torch.nn.LayerNorm(6, dtype=torch.float64)
    torch.nn.init.normal_(ours.weight)
    torch.nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    x = random(2, 7, 6)
    torch.testing.assert_close(ours(x), theirs(x))
    ours.reset_parameters()
    torch.testing.assert_close(ours(x), torch.nn.functional.layer_norm(x, (6,)))


def test_initialised_as_torchs_linear() -> None:
    torch.manual_seed(0)
    ours, theirs = Linear(50, 400), torch.nn.Linear(50, 400)
    for name in ("weight", "bias"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert one.abs().max() <= 50**-0.5
        assert one.std().item() == pytest.approx(other.std().item(), rel=0.1)


def test_initialised_with_a_given_deviation() -> None:
    layer = Linear(50, 400)
    layer.reset_parameters(0.01)
    assert layer.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert not layer.bias.any()
    Linear(2, 2, bias=False).reset_parameters(0.5)


@pytest.mark.parametrize("make", [lambda: Linear(4, 4), lambda: LayerNorm(4)])
def test_a_run_axis_is_one_layer_a_run(make) -> None:
    layers = [make().double() for _ in range(3)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight)
    shared, own = random(5, 4), random(3, 5, 4)
    expected = torch.stack([layer(shared) for layer in layers])
    torch.testing.assert_close(stack(layers)(shared), expected)
    expected = torch.stack([layer(x) for layer, x in zip(layers, own, strict=True)])
    torch.testing.assert_close(stack(layers)(own), expected)


def test_repr() -> None:
    assert repr(Linear(3, 5)) == "Linear(3, 5, bias=True)"
    assert repr(Linear(3, 5, bias=False)) == "Linear(3, 5, bias=False)"
    assert repr(LayerNorm(4)) == "LayerNorm(4, eps=1e-05)"
