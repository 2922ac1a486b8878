"""Layer normalisation of one run and of several, against its formula."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.conftest import INTERPRETED
from tests.kernels.triton.graphs import assert_same, random
from torch import Tensor

from specformer.kernels.triton import row_norm as layer_norm
from specformer.kernels.triton.row_norm import normalised_rows
from specformer.nn.layers.linear import LayerNorm

pytestmark = pytest.mark.skipif(
    not (INTERPRETED or torch.cuda.is_available()), reason="Needs a GPU or Triton's interpreter"
)
EPS = 1e-5


def fused(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return normalised_rows(x, weight, bias, EPS)


def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    var = centred.square().mean(dim=-1, keepdim=True)
    return centred / (var + EPS).sqrt() * weight.unsqueeze(-2) + bias.unsqueeze(-2)


def inputs(shape: tuple[int, ...], lead: tuple[int, ...]) -> list[Tensor]:
    """Rows far from zero, and parameters with these leading axes."""
    parameters = random(2, *lead, shape[-1], seed=1)
    return [random(*shape, seed=0) * 2.0 + 3.0, *parameters]


@pytest.mark.parametrize(
    ("shape", "lead"),
    [
        ((1, 1), ()),
        ((7, 5), ()),
        ((130, 32), ()),
        ((3, 21, 33), ()),
        ((2, 3, 5, 4), ()),
        ((9, 100), (1,)),
        ((1, 9, 6), (1,)),
        ((3, 70, 32), (3,)),
        ((3, 11, 7), (3,)),
        ((13, 7), (3,)),  # the same rows for all runs
        ((1, 13, 7), (3,)),
        ((2, 3, 11, 7), (3,)),
        ((0, 4), ()),
        ((3, 0, 4), (3,)),
        ((3, 3000), ()),  # wider than a block
    ],
)
def test_outputs_and_gradients(
    shape: tuple[int, ...], lead: tuple[int, ...], device: torch.device
) -> None:
    assert_same(fused, plain, inputs(shape, lead), device)


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("programs", [1, 4, 512])
def test_parts_of_several_blocks(
    lead: tuple[int, ...], programs: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_norm, "_NUMBERS", 32)
    monkeypatch.setattr(layer_norm, "_PROGRAMS", programs)
    assert_same(fused, plain, inputs((3, 43, 8), lead), device)


@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        ((5, 3, 8), lambda x: x.movedim(0, 1), lambda y: y.movedim(0, 1)),
        ((3, 5, 9), lambda x: x[..., 1:], lambda y: y[:, ::2]),
        ((3, 8, 5), lambda x: x.mT, lambda y: y.mT),
        ((3, 5, 8), lambda x: x, lambda y: y.sum(dim=(-2, -1))),
    ],
)
def test_rows_and_gradients_that_lie_apart(shape, before, after, device: torch.device) -> None:
    parameters = random(2, 3, 8, seed=1)
    functions = (
        lambda x, *rest, function=function: after(function(before(x), *rest))
        for function in (fused, plain)
    )
    assert_same(*functions, [random(*shape, seed=0), *parameters], device)


def test_a_large_mean_costs_no_digits(device: torch.device) -> None:
    x = torch.tensor([[4096.0, 4097.0, 4098.0, 4099.0]], device=device)
    found = fused(x, x.new_ones(4), x.new_zeros(4))
    expected = torch.tensor([[-1.5, -0.5, 0.5, 1.5]]) / (1.25 + EPS) ** 0.5
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 2)])
def test_only_gradients_that_are_wanted(wanted: tuple[int, ...], device: torch.device) -> None:
    tensors = [x.to(device, torch.float32) for x in inputs((3, 4, 6), (3,))]
    for place in wanted:
        tensors[place].requires_grad_()
    fused(*tensors).square().sum().backward()
    assert tuple(place for place, x in enumerate(tensors) if x.grad is not None) == wanted


@pytest.mark.parametrize("lead", [(), (1,), (3,)])
@pytest.mark.parametrize("shared", [True, False])
def test_the_layer_uses_it(lead: tuple[int, ...], shared: bool, device: torch.device) -> None:
    layer = LayerNorm(6)
    layer.weight, layer.bias = (torch.nn.Parameter(each) for each in random(2, *lead, 6, seed=1))
    x = random(*(() if shared else lead), 5, 6, seed=0)
    expected = layer(x)
    found = layer.to(device, torch.float32)(x.to(device, torch.float32))
    assert "_LayerNorm" in str(found.grad_fn.next_functions)
    torch.testing.assert_close(found.detach().cpu().double(), expected.detach(), rtol=0, atol=1e-5)
