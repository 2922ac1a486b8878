"""Rates in closed form step by step, AdamW against AdamW with plain numbers, bad settings."""

from __future__ import annotations

import math

import pytest
import torch

from specformer.errors import ConfigError
from specformer.training.optim.schedule import GraphSchedule

STEPS = 7


def closed_form(schedule: GraphSchedule, step: int) -> float:
    epochs = step / STEPS
    done = max(0.0, (epochs - schedule.warmup) / (schedule.epochs - schedule.warmup))
    rate = schedule.learning_rate * (1 + math.cos(math.pi * done)) / 2
    if epochs < schedule.warmup:
        rate *= (step + 1) / (schedule.warmup * STEPS)
    return rate


@pytest.mark.parametrize(
    "schedule",
    [
        GraphSchedule(epochs=9, warmup=0),
        GraphSchedule(epochs=9, warmup=3, learning_rate=0.02),
    ],
)
def test_rate_is_the_closed_form(schedule: GraphSchedule) -> None:
    steps = range(schedule.epochs * STEPS)
    expected = torch.tensor([closed_form(schedule, step) for step in steps])
    found = schedule.rate(torch.tensor(list(steps)), STEPS)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
    assert found[-1] < 0.2 * schedule.learning_rate


def test_it_is_adamw_with_its_settings() -> None:
    settings = GraphSchedule(learning_rate=0.01, weight_decay=0.1, beta1=0.8, beta2=0.9)
    ours, plain = (torch.nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2))
    optimiser = settings.optimiser([ours], torch.device("cpu"))
    reference = torch.optim.AdamW([plain], lr=0.01, weight_decay=0.1, betas=(0.8, 0.9))
    for step in range(5):
        for parameter, one in ((ours, optimiser), (plain, reference)):
            parameter.grad = (parameter.detach() + step).sin()
            one.step()
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"epochs": 2.5}, "epochs=2.5 must be a whole number"),
        ({"epochs": None}, "epochs=None must be a whole number"),
        ({"learning_rate": None}, "learning_rate=None must be a finite number"),
        ({"warmup": None}, "warmup=None must be a whole number"),
        ({"beta2": "high"}, "beta2='high' must be a finite number"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be positive"),
        ({"clip": -1.0}, "clip=-1.0 must be positive"),
        ({"average": 0.0}, "average=0.0 must be positive"),
        ({"warmup": -1}, "warmup=-1 must not be negative"),
        ({"weight_decay": float("nan")}, "weight_decay=nan must be a finite number"),
        ({"beta1": 1.0}, "beta1=1.0 must be at least 0 and below 1"),
    ],
)
def test_bad_settings_are_named(setting, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GraphSchedule(**setting)
