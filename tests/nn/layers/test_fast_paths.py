"""What is remembered, for how long, and when it is not."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

from specformer.nn.filter import EigenvalueEncoding
from specformer.nn.layers.fast_paths import Remembered, side_by_side
from specformer.training.engine.capture import Repeated


class Made:
    """Counts how often it makes a number."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> torch.Tensor:
        self.times += 1
        return torch.tensor(float(self.times))


def test_made_once_for_a_tensor_and_a_name():
    known, made = Remembered(), Made()
    one, other = torch.ones(2), torch.ones(2)
    for _ in range(3):
        known(one, "a", made)
    assert made.times == 1
    known(one, "b", made)
    known(other, "a", made)  # equal, but not the same
    assert made.times == 3


def test_a_change_in_place_is_noticed():
    known, made = Remembered(), Made()
    source = torch.ones(2)
    known(source, "a", made)
    source.add_(1.0)
    assert known(source, "a", made) == 2.0


def test_what_is_made_of_several_tensors_needs_the_same_ones():
    known, made = Remembered(), Made()
    one, other, third = torch.ones(2), torch.ones(2), torch.ones(2)
    for others in ((other,), (other,), (third,), (third,), (), (third, other)):
        known(one, "a", made, *others)
    assert made.times == 4
    other.add_(1.0)
    known(one, "a", made, third, other)
    assert made.times == 5


def test_nothing_outlives_its_tensor():
    known, source = Remembered(), torch.ones(2)
    kept = weakref.ref(known(source, "a", lambda: torch.zeros(3)))
    assert kept() is not None
    del source
    gc.collect()
    assert kept() is None


def test_not_where_gradients_flow_or_versions_are_unknown():
    known, made = Remembered(), Made()
    variable = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        frozen = torch.ones(2)
    for source in (variable, frozen):
        known(source, "a", made)
        known(source, "a", made)
    assert made.times == 4


def test_what_inference_mode_makes_is_made_again():
    known, made, source = Remembered(), Made(), torch.ones(2)
    with torch.inference_mode():
        assert known(source, "a", made).is_inference()
    assert not known(source, "a", made).is_inference()
    with torch.inference_mode():  # what is kept serves there too
        known(source, "a", made)
    assert made.times == 2


def test_copies_are_empty():
    known, made, source = Remembered(), Made(), torch.ones(2)
    known(source, "a", made)
    copy.deepcopy(known)(source, "a", made)
    assert made.times == 2


def test_an_encoding_is_that_of_its_own_eigenvalues_and_precision():
    encoding = EigenvalueEncoding(4)
    values = torch.tensor([0.5, 1.0])
    first = encoding(values)
    assert encoding(values) is first
    values.mul_(2.0)
    torch.testing.assert_close(encoding(values), EigenvalueEncoding(4)(values.clone()))
    torch.testing.assert_close(copy.deepcopy(encoding)(values), encoding(values))


def test_on_a_cpu_the_first_comes_first() -> None:
    order: list[str] = []

    def aside() -> list[torch.Tensor]:
        order.append("aside")
        return [torch.ones(2)]

    tensors, own = side_by_side(aside, lambda: order.append("own"), torch.device("cpu"))
    assert order == ["aside", "own"]
    assert (tensors[0].tolist(), own) == ([1.0, 1.0], None)


def descent(device: torch.device, capture: bool) -> list[torch.Tensor]:
    """Steps down a function of two weights whose branches are long chains of small kernels."""
    torch.manual_seed(0)
    first, second = (torch.randn(64, 64, dtype=torch.float64).to(device) for _ in range(2))
    for weight in (first, second):
        weight.requires_grad_()
    losses = torch.zeros(12, dtype=torch.float64, device=device)
    step = torch.zeros((), dtype=torch.long, device=device)

    def chain(weight: torch.Tensor) -> torch.Tensor:
        out = weight
        for _ in range(30):
            out = (out @ weight).tanh()
        return out

    def one_step() -> None:
        first.grad = second.grad = None
        (one,), two = side_by_side(lambda: [chain(first)], lambda: chain(second), device)
        loss = (one * two).sum()
        loss.backward()
        with torch.no_grad():
            losses.index_copy_(0, step.view(1), loss.detach().view(1))
            for weight in (first, second):
                assert weight.grad is not None
                weight.sub_(weight.grad, alpha=1e-3)
            step.add_(1)

    repeated = Repeated(one_step, device, capture=capture)
    for _ in range(12):
        repeated()
    return [each.detach().cpu() for each in (losses, first, second)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_captured_branches_and_their_gradients_are_the_called_ones() -> None:
    device = torch.device("cuda")
    for captured, called in zip(descent(device, True), descent(device, False), strict=True):
        torch.testing.assert_close(captured, called, rtol=1e-9, atol=1e-9)


def test_descent_goes_down() -> None:
    losses = descent(torch.device("cpu"), False)[0]
    assert losses[-1] < losses[0]
