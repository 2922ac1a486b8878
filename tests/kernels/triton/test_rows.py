"""Kernels over rows: sums, moments, normalisation, and the lift of a few numbers to many."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from tests.kernels.triton.graphs import assert_same, random
from torch.nn.functional import gelu, linear, relu

from specformer.kernels.norms import Averages
from specformer.kernels.triton import normalise
from specformer.kernels.triton.columns import column_moments
from specformer.kernels.triton.folding import folded_norm
from specformer.kernels.triton.lift import gelu_lift
from specformer.kernels.triton.normalise import normalised

ACTIVATIONS = {"relu": relu, "gelu": gelu, None: torch.Tensor.clone}


@pytest.mark.parametrize(("rows", "narrow", "wide"), [(34, 9, 40), (3, 2, 5), (65, 17, 5)])
def test_gelu_lift(rows: int, narrow: int, wide: int, device: torch.device) -> None:
    inputs = [random(rows, narrow, seed=0), random(wide, narrow, seed=1), random(wide, seed=2)]
    assert_same(gelu_lift, lambda *tensors: gelu(linear(*tensors)), inputs, device)


def test_gelu_and_its_slope_are_exact_to_float32(device: torch.device) -> None:
    x = torch.linspace(-9.0, 9.0, 300).unsqueeze(-1)
    one, none = torch.ones(1, 1), torch.zeros(1)
    results = []
    for function, dtype in ((gelu_lift, torch.float32), (None, torch.float64)):
        place = device if function else torch.device("cpu")
        leaf = x.to(place, dtype).requires_grad_()
        out = function(leaf, one.to(place), none.to(place)) if function else gelu(leaf)
        results.append((out, *torch.autograd.grad(out.sum(), leaf)))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=2e-6)


# --- normalisation: PyTorch's own over the rows that count ----------------------------------------


def averages_of(channels: int, device: torch.device) -> Averages:
    mean, var = random(channels, seed=5), random(channels, seed=6).square()
    shift = random(channels, seed=7)
    return Averages(*(x.to(device, torch.float32) for x in (mean, var)), 0.1, shift.to(mean))


def assert_averages(averages: Averages, rows: torch.Tensor) -> None:
    """Those of PyTorch's layer, started alike and called with these rows, shifted."""
    channels = rows.shape[1]
    theirs = torch.nn.BatchNorm1d(channels).double()
    theirs.running_mean.copy_(random(channels, seed=5))
    theirs.running_var.copy_(random(channels, seed=6).square())
    theirs(rows.double() + averages.shift.cpu().double())
    for ours, expected in (
        (averages.mean, theirs.running_mean),
        (averages.var, theirs.running_var),
    ):
        torch.testing.assert_close(ours.cpu().double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("rows", "channels", "most"), [(7, 3, 4096), (300, 6, 4096), (600, 5, 256)]
)
def test_normalised(
    rows: int,
    channels: int,
    most: int,
    activation: Literal["relu", "gelu"] | None,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(normalise, "_ROWS", most)
    mask = torch.arange(rows) % 5 != 1
    share, number = mask.float().unsqueeze(-1).to(device), mask.sum().float().to(device)
    x = random(rows, channels, seed=0) * 2.0 + 3.0
    averages = averages_of(channels, device)

    def fused(x, weight, bias, shift):
        given = averages._replace(shift=shift)
        return normalised(x, share, number, weight, bias, given, 1e-5, activation)

    def plain(x, weight, bias, shift):
        var, mean = torch.var_mean(x[mask], dim=0, correction=0)
        scaled = (x - mean) * (var + 1e-5).rsqrt() * weight + bias
        return ACTIVATIONS[activation](scaled)

    inputs = [x, *random(2, channels, seed=1), averages.shift]
    assert_same(fused, plain, inputs, device)
    assert_averages(averages, x[mask])


@pytest.mark.parametrize("most", [4096, 4])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_normalised_keeps_what_is_no_number(
    activation: Literal["relu", "gelu"] | None,
    most: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(normalise, "_ROWS", most)
    x = random(6, 3, seed=0)
    x[2, 1] = torch.nan
    averages = averages_of(3, device)
    share, number = torch.ones(6, 1, device=device), torch.tensor(6.0, device=device)

    def fused(x, weight, bias):
        given = averages._replace(shift=torch.zeros(3, device=device))
        return normalised(x, share, number, weight, bias, given, 1e-5, activation)

    def plain(x, weight, bias):
        normal = torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True)
        return ACTIVATIONS[activation](normal)

    assert_same(fused, plain, [x, *random(2, 3, seed=1)], device)
    assert averages.mean.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("most", [4096, 4])
def test_fewer_rows_than_two_leave_the_averages(
    count: int, most: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalise, "_ROWS", most)
    averages = averages_of(3, device)._replace(shift=torch.ones(3, device=device))
    before = averages.mean.clone(), averages.var.clone()
    share = (torch.arange(6, device=device) < count).float().unsqueeze(-1)
    x = random(6, 3, seed=0).to(device, torch.float32).requires_grad_()
    weight, bias = torch.ones(2, 3, device=device)
    out = normalised(x, share, share.sum(), weight, bias, averages, 1e-5)
    torch.testing.assert_close(out[:count], torch.ones(count, 3, device=device))
    (gradient,) = torch.autograd.grad((out * share).sum(), x)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))
    assert torch.equal(averages.mean, before[0])
    assert torch.equal(averages.var, before[1])


@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_column_moments(mean: float, device: torch.device) -> None:
    rows, channels = 300, 35
    mask = torch.arange(rows) < 290
    x = (random(rows, channels, seed=0) + mean).float()
    averages = averages_of(channels, device)
    averages = averages._replace(shift=averages.shift.to(device, torch.float32))
    mean_found, inverse_found = column_moments(
        x.to(device),
        mask.float().unsqueeze(-1).to(device),
        mask.sum().float().to(device),
        averages,
        1e-5,
    )
    var, middle = torch.var_mean(x[mask].double(), dim=0, correction=0)
    torch.testing.assert_close(mean_found.cpu().double(), middle, rtol=1e-6, atol=1e-6)
    inverse = (var + 1e-5).rsqrt()
    torch.testing.assert_close(inverse_found.cpu().double(), inverse, rtol=2e-5, atol=0)
    assert_averages(averages, x[mask])


@pytest.mark.parametrize(("narrow", "wide"), [(3, 5), (9, 40)])
def test_folded_norm(narrow: int, wide: int, device: torch.device) -> None:
    x = random(60, narrow, seed=0)
    averages = averages_of(wide, device)
    number = torch.tensor(60.0, device=device)

    def fused(x, weight, scale, bias, shift):
        mean = x.mean(dim=0)
        covariance = (x - mean).mT @ (x - mean) / 60.0
        given = averages._replace(shift=shift)
        folded = folded_norm(weight, mean, covariance, scale, bias, number, given, 1e-5)
        return linear(x, *folded)

    def plain(x, weight, scale, bias, shift):
        return torch.nn.functional.batch_norm(
            x @ weight.mT + shift, None, None, scale, bias, training=True
        )

    weight = random(wide, narrow, seed=1)
    inputs = [x, weight, *random(2, wide, seed=2), averages.shift]
    assert_same(fused, plain, inputs, device, atol=1e-4)
    assert_averages(averages, x @ weight.mT)


def test_folded_norm_keeps_what_is_no_number(device: torch.device) -> None:
    averages = averages_of(2, device)._replace(shift=torch.zeros(2, device=device))
    weight, mean = torch.ones(2, 3, device=device), torch.zeros(3, device=device)
    covariance = torch.full((3, 3), torch.nan, device=device)
    scale, shift = torch.ones(2, 2, device=device)
    number = torch.tensor(9.0, device=device)
    folded, _ = folded_norm(weight, mean, covariance, scale, shift, number, averages, 1e-5)
    assert folded.isnan().all()
    assert averages.var.isnan().all()
