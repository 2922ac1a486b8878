"""Adam on pieces against Adam on whole parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from specformer.training.engine.memory_block import join
from specformer.training.optim import adam as pieced_adam
from specformer.training.optim.adam import PiecedAdam, PiecedAdamW
from specformer.training.optim.schedule import moments, prepare_moments, settle_moments
from specformer.training.runs.checkpoint import Checkpoint


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
