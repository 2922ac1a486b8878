"""Repeating an epoch: on a CPU a plain call each time."""

from __future__ import annotations

import pytest
import torch

from specformer.training.capture import Repeated


@pytest.mark.parametrize("capture", [True, False])
def test_every_call_is_one_epoch(capture):
    weight, epoch = torch.ones(()), torch.zeros((), dtype=torch.long)

    def one_epoch() -> None:
        weight.mul_(2)
        epoch.add_(1)

    repeated = Repeated(one_epoch, torch.device("cpu"), capture=capture)
    for _ in range(10):
        repeated()
    assert epoch.item() == 10
    assert weight.item() == 1024


def test_errors_come_through():
    def one_epoch() -> None:
        raise ValueError("from inside")

    with pytest.raises(ValueError, match="from inside"):
        Repeated(one_epoch, torch.device("cpu"))()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replayed_epochs_equal_called_ones():
    device = torch.device("cuda")
    results = []
    for capture in (True, False):
        weight = torch.ones(5, device=device)
        epoch = torch.zeros((), device=device)

        def one_epoch(weight=weight, epoch=epoch) -> None:
            weight.add_(epoch)
            epoch.add_(1)

        repeated = Repeated(one_epoch, device, capture=capture)
        for _ in range(20):
            repeated()
        results.append(weight.cpu())
    assert torch.equal(*results)
