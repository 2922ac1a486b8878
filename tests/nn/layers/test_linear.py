"""The two layers that may carry a run axis: torch's own without it, one layer a run with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.drawn import random
from tests.nn.plain_twin import BOTH_DTYPES

from specformer import kernels
from specformer.kernels.norms import column_sums, ones_product
from specformer.nn.layers.linear import LayerNorm, Linear, affine, pieced_product
from specformer.training.engine.stacking import stack


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_torchs(dtype: torch.dtype, bias: bool) -> None:
    ours, theirs = Linear(3, 5, bias).to(dtype), torch.nn.Linear(3, 5, bias, dtype=dtype)
    theirs.load_state_dict(ours.state_dict())
    x = random(2, 7, 3, dtype=dtype)
    torch.testing.assert_close(ours(x), theirs(x))


def gradients(out: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    factors = random(*out.shape, seed=3)
    return torch.autograd.grad((out * factors).sum(), inputs)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 3), (2, 7, 3), (2, 4, 7, 3)])
def test_gradients_of_linear_are_torchs(shape: tuple[int, ...], bias: bool) -> None:
    ours = Linear(3, 5, bias).double()
    x = random(*shape).requires_grad_()
    inputs = [x, *ours.parameters()]
    plain = torch.nn.functional.linear(x, ours.weight, ours.bias)
    for one, other in zip(gradients(ours(x), inputs), gradients(plain, inputs), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("make", [lambda: Linear(4, 4), lambda: LayerNorm(4)])
def test_gradients_of_runs_are_those_of_each(make, shared: bool, runs: int) -> None:
    layers = [make().double() for _ in range(runs)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight)
    stacked = stack(layers)
    x = random(5, 4) if shared else random(runs, 5, 4)
    x.requires_grad_()
    inputs = [x.clone() for _ in layers] if shared else list(x.clone())
    alone = torch.stack([layer(each) for layer, each in zip(layers, inputs, strict=True)])
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    expected = gradients(alone, [*inputs, *parameters])
    found = gradients(stacked(x), [x, *stacked.parameters()])
    to_inputs = torch.stack(expected[:runs])
    torch.testing.assert_close(found[0], to_inputs.sum(dim=0) if shared else to_inputs)
    for place, name in enumerate(("weight", "bias")):
        each = torch.stack(expected[runs + place :: 2])
        torch.testing.assert_close(found[1 + place], each, msg=name)


def test_gradients_of_gradients() -> None:
    for layer in (Linear(3, 2).double(), stack([Linear(3, 2).double() for _ in range(2)])):
        inputs = (random(4, 3).requires_grad_(), layer.weight, layer.bias)
        assert torch.autograd.gradcheck(affine, inputs)
        assert torch.autograd.gradgradcheck(affine, inputs)


@pytest.mark.parametrize("shape", [(5, 3), (1, 5, 3), (2, 9, 3), (2, 4, 5, 3), (0, 3), (1, 1)])
def test_sums_as_products(shape: tuple[int, ...]) -> None:
    rows = random(*shape)
    expected = rows.sum(dim=-2, keepdim=True)
    for way in (column_sums, ones_product):
        torch.testing.assert_close(way(rows), expected)


@pytest.mark.parametrize("rows", [1, 13, 12, 64, 0])
def test_long_sums_in_pieces(rows: int) -> None:
    left, right = random(3, rows, 4), random(3, rows, 5, seed=1)
    torch.testing.assert_close(pieced_product(left, right), left.mT @ right)


def test_no_gradient_is_computed_that_nobody_wants() -> None:
    layer = Linear(3, 2)
    layer.weight.requires_grad_(False)
    layer(torch.randn(4, 3)).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((2,), 4.0))


def test_layer_norm_is_torchs() -> None:
    ours, theirs = LayerNorm(6).double(), torch.nn.LayerNorm(6, dtype=torch.float64)
    torch.nn.init.normal_(ours.weight)
    torch.nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    x = random(2, 7, 6)
    torch.testing.assert_close(ours(x), theirs(x))
    ours.reset_parameters()
    torch.testing.assert_close(ours(x), torch.nn.functional.layer_norm(x, (6,)))


def test_a_compiler_gets_the_plain_layer_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = LayerNorm(6), random(7, 6, dtype=torch.float32)
    expected = layer(x)
    # Where a kernel could not run.
    monkeypatch.setattr(kernels, "runs_on", lambda device, kernel: True)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 10])
@pytest.mark.parametrize("channels", [32, 300])
def test_kernels_of_layer_norm_compile(
    runs: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a GPU that need not be there."""
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    from tests.kernels.triton.test_compiled import compiled

    shared = []

    def run(kernel, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        binary = compiled(kernel, args, options)
        assert binary.asm["cubin"]
        shared.append(binary.metadata.shared)

    monkeypatch.setattr(triton.runtime.JITFunction, "run", run)
    monkeypatch.setattr(kernels, "runs_on", lambda device, kernel: True)
    layer = stack([LayerNorm(channels) for _ in range(runs)])
    layer(torch.zeros(runs, 200, channels, requires_grad=True)).sum().backward()
    assert len(shared) == 3  # forward, backward, sums
    assert max(shared) <= 48 * 1024


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
