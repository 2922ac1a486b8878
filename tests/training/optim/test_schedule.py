"""Learning rates in closed form, and Adam with them against Adam with plain numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from specformer.errors import ConfigError
from specformer.training.optim import schedule as pieced_adam
from specformer.training.optim.early_stopping import join
from specformer.training.optim.schedule import (
    PiecedAdam,
    PiecedAdamW,
    Schedule,
    moments,
    prepare_moments,
    settle_moments,
)
from specformer.training.runs.checkpoint import Checkpoint

EPOCHS = 40
SCHEDULES = {
    "constant": Schedule(epochs=EPOCHS, learning_rate=0.03),
    "warm-up": Schedule(epochs=EPOCHS, learning_rate=0.03, warmup=7),
    "cosine": Schedule(epochs=EPOCHS, learning_rate=0.03, decay="cosine"),
    "both": Schedule(epochs=EPOCHS, learning_rate=0.03, decay="cosine", warmup=5),
    "decayed weights": Schedule(epochs=EPOCHS, learning_rate=0.03, weight_decay=0.1),
}
schedules = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


def closed_form(schedule: Schedule, epoch: int) -> float:
    rate = schedule.learning_rate
    if schedule.decay == "cosine":
        done = max(0.0, (epoch - schedule.warmup) / (schedule.epochs - schedule.warmup))
        rate *= (1 + math.cos(math.pi * done)) / 2
    if epoch < schedule.warmup:
        rate *= (epoch + 1) / schedule.warmup
    return rate


@schedules
def test_rate_is_the_closed_form(schedule):
    rates = schedule.rate(torch.arange(EPOCHS))
    expected = torch.tensor([closed_form(schedule, epoch) for epoch in range(EPOCHS)])
    torch.testing.assert_close(rates, expected, rtol=1e-5, atol=1e-7)


def test_landmarks_of_the_rate():
    cosine = SCHEDULES["cosine"]
    assert cosine.rate(torch.tensor(0)).item() == pytest.approx(0.03)
    assert cosine.rate(torch.tensor(EPOCHS // 2)).item() == pytest.approx(0.015)
    assert cosine.rate(torch.tensor(EPOCHS)).item() == pytest.approx(0.0, abs=1e-8)
    assert SCHEDULES["warm-up"].rate(torch.tensor(6)).item() == pytest.approx(0.03)


@schedules
def test_adam_is_pytorchs_with_plain_numbers(schedule):
    torch.manual_seed(0)
    start, target = torch.randn(3, 4), torch.randn(3, 4)

    def descend(optimiser, weights, set_rate) -> torch.Tensor:
        for epoch in range(12):
            set_rate(epoch)
            optimiser.zero_grad()
            (weights - target).square().sum().backward()
            optimiser.step()
        return weights.detach()

    ours = start.clone().requires_grad_()
    optimiser = schedule.optimiser([ours], torch.device("cpu"))
    found = descend(
        optimiser, ours, lambda epoch: schedule.set_rate(optimiser, torch.tensor(epoch))
    )
    theirs = start.clone().requires_grad_()
    plain = torch.optim.Adam([theirs], weight_decay=schedule.weight_decay)

    def plain_rate(epoch: int) -> None:
        plain.param_groups[0]["lr"] = closed_form(schedule, epoch)

    expected = descend(plain, theirs, plain_rate)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": -5},
        {"patience": 0},
        {"learning_rate": 0.0},
        {"learning_rate": -0.1},
        {"learning_rate": float("nan")},
        {"warmup": -1},
        {"weight_decay": -1.0},
        {"weight_decay": float("nan")},
        {"filter_weight_decay": -1.0},
        {"filter_learning_rate": 0.0},
        {"epochs": 2.5},
        {"patience": None},
        {"learning_rate": None},
        {"warmup": None},
    ],
    ids=str,
)
def test_impossible_schedules_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))}="):
        Schedule(**wrong)


def test_filters_take_their_own_rate_and_decay():
    weights, gains = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    schedule = Schedule(
        learning_rate=0.1,
        weight_decay=0.5,
        filter_learning_rate=0.01,
        filter_weight_decay=0.0,
        decay="cosine",
        epochs=10,
    )
    optimiser = schedule.optimiser([weights, gains], torch.device("cpu"), [gains])
    schedule.set_rate(optimiser, torch.tensor(5))
    rates = {id(group["params"][0]): float(group["lr"]) for group in optimiser.param_groups}
    decays = {id(group["params"][0]): group["weight_decay"] for group in optimiser.param_groups}
    assert rates[id(gains)] == pytest.approx(rates[id(weights)] / 10)
    assert (decays[id(weights)], decays[id(gains)]) == (0.5, 0.0)


def test_equal_settings_are_one_group():
    weights, gains = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    same = Schedule(learning_rate=0.1, weight_decay=0.5, filter_weight_decay=0.5)
    (group,) = same.optimiser([gains, weights], torch.device("cpu"), [gains]).param_groups
    assert [id(each) for each in group["params"]] == [id(weights), id(gains)]
    own = Schedule(learning_rate=0.1, weight_decay=0.5, filter_learning_rate=0.2)
    groups = own.optimiser([gains, weights], torch.device("cpu"), [gains]).param_groups
    assert [group["lr"].item() for group in groups] == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(
    "pair",
    [(PiecedAdam, torch.optim.Adam), (PiecedAdamW, torch.optim.AdamW)],
    ids=["adam", "adamw"],
)
def test_the_same_as_on_whole_parameters(monkeypatch, pair, set_to_none: bool):
    monkeypatch.setattr(pieced_adam, "_PIECE", 7)
    torch.manual_seed(0)
    start = [torch.randn(4, 5), torch.randn(7), torch.randn(2), torch.randn(3, 5)]
    x = torch.randn(6, 5)
    found = []
    for adam in pair:
        weights = [nn.Parameter(each.clone()) for each in start]
        join(weights)
        groups = [
            {"params": weights[:2], "weight_decay": 0.1},
            {"params": weights[2:], "lr": 0.2},
        ]
        optimiser = adam(groups, lr=0.01, fused=True)
        for _ in range(5):
            optimiser.zero_grad(set_to_none=set_to_none)
            out = (x @ weights[0].mT).square().sum() + (weights[1] ** 4).sum()
            (out + (x @ weights[3].mT).sum() ** 2).backward()  # the third has no gradient
            optimiser.step()
        found.append(weights)
    assert torch.equal(found[0][2], start[2])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_are_those_of_the_parameters_given():
    weight = nn.Parameter(torch.ones(20000))
    optimiser = PiecedAdam([{"params": [weight]}], lr=0.1)
    weight.sum().backward()
    optimiser.zero_grad(set_to_none=False)
    assert not weight.grad.any()
    optimiser.zero_grad()
    assert weight.grad is None
    optimiser.step()
    assert torch.equal(weight, torch.ones(20000))


@pytest.mark.parametrize(
    "pair", [(PiecedAdamW, torch.optim.AdamW), (torch.optim.AdamW, PiecedAdamW)]
)
def test_goes_on_from_the_moments_of_the_other(tmp_path: Path, monkeypatch, pair):
    monkeypatch.setattr(pieced_adam, "_PIECE", 7)
    torch.manual_seed(0)
    target, start = torch.randn(4, 5), torch.randn(4, 5)

    def steps(optimiser, weight, number):
        for _ in range(number):
            optimiser.zero_grad()
            (weight - target).pow(4).sum().backward()
            optimiser.step()

    def fresh(adam):
        weight = nn.Parameter(start.clone())
        return prepare_moments(adam([{"params": [weight]}], lr=0.01, fused=True)), weight

    one, expected = fresh(pair[0])
    steps(one, expected, 6)
    first, weight = fresh(pair[0])
    steps(first, weight, 3)
    kept = Checkpoint(tmp_path / "kept.safetensors", "a test")
    kept.save({"weight": weight, **moments(first)})
    second, weight = fresh(pair[1])
    assert kept.restore({"weight": weight, **moments(second)})
    settle_moments(second)
    steps(second, weight, 3)
    torch.testing.assert_close(weight, expected)
