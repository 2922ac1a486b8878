"""Two functions side by side, called or captured."""

from __future__ import annotations

import pytest
import torch

from specformer.nn.layers.streams import side_by_side
from specformer.training.engine.capture import Repeated


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
