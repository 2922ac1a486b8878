"""Repeating an epoch: on a CPU a plain call each time."""

from __future__ import annotations

import pytest
import torch

from specformer.training.engine.capture import Repeated, RepeatedByShape, beside


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


def shaped_calls(device: torch.device, capture: bool) -> torch.Tensor:
    """Many calls of a step for two shapes: numbers are summed, weighted by shape and by time."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    time = torch.zeros((), dtype=torch.float64, device=device)

    def step(index: torch.Tensor, shape: int) -> None:
        time.add_(1)
        total.add_(index.sum() * shape * time)

    repeated = RepeatedByShape(step, device, capture=capture)
    random = torch.Generator().manual_seed(0)
    for number in range(20):
        shape = 3 if number % 3 else 5
        repeated(torch.randint(100, (shape,), generator=random).to(device), shape)
    return total.cpu()


def test_a_call_of_any_shape_is_one_step():
    random = torch.Generator().manual_seed(0)
    expected = 0
    for number in range(20):
        shape = 3 if number % 3 else 5
        expected += torch.randint(100, (shape,), generator=random).sum() * shape * (number + 1)
    assert shaped_calls(torch.device("cpu"), capture=True) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replayed_shapes_equal_called_ones():
    device = torch.device("cuda")
    assert shaped_calls(device, capture=True) == shaped_calls(torch.device("cpu"), capture=False)


def forked_epochs(device: torch.device, capture: bool, apart: bool) -> list[torch.Tensor]:
    """Epochs of two long sums of the same numbers, one beside the other, and then new numbers."""
    numbers = torch.arange(1.0, 5.0, dtype=torch.float64, device=device)
    beside_it, within = torch.zeros_like(numbers), torch.zeros_like(numbers)

    def many(into: torch.Tensor) -> None:
        for power in range(1, 30):
            into.add_((numbers * power).sin().cumsum(0))

    def one_epoch() -> None:
        with beside(lambda: many(beside_it), device, apart=apart):
            many(within)
        numbers.add_(beside_it + within)

    repeated = Repeated(one_epoch, device, capture=capture)
    for _ in range(8):
        repeated()
    return [each.cpu() for each in (numbers, beside_it, within)]


@pytest.mark.parametrize("apart", [True, False])
def test_work_beside_a_block_comes_first_on_a_cpu(apart):
    order = []
    with beside(lambda: order.append("work"), torch.device("cpu"), apart=apart):
        order.append("block")
    assert order == ["work", "block"]


def test_errors_come_through_from_beside():
    def fails() -> None:
        raise ValueError("from beside")

    with pytest.raises(ValueError, match="from beside"), beside(fails, torch.device("cpu")):
        pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("apart", [True, False])
def test_captured_work_beside_a_block_equals_calls(apart):
    device = torch.device("cuda")
    captured, called = (forked_epochs(device, capture, apart) for capture in (True, False))
    for one, other in zip(captured, called, strict=True):
        assert torch.equal(one, other)
