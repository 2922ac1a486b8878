"""Batch normalisation against PyTorch's own."""

import pytest
import torch
from torch import nn

from specformer.kernels.norms import CountedRows
from specformer.nn.layers.batch_norm import BatchNorm


def _pair(channels=3):
    torch.manual_seed(0)
    ours, theirs = BatchNorm(channels).double(), torch.nn.BatchNorm1d(channels).double()
    weight, bias = torch.randn(2, channels, dtype=torch.float64)
    for norm in (ours, theirs):
        norm.weight.data.copy_(weight)
        norm.bias.data.copy_(bias)
    return ours, theirs


def _assert_same_averages(ours, theirs):
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


def test_equals_pytorch_in_training_and_evaluation():
    ours, theirs = _pair()
    for _ in range(3):
        x = torch.randn(20, 3, dtype=torch.float64) * 2 + 1
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        left, right = ours(a), theirs(b)
        torch.testing.assert_close(left, right)
        weights = torch.randn_like(x)
        (left * weights).sum().backward()
        (right * weights).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)
    _assert_same_averages(ours, theirs)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_several_signals_are_one_batch():
    ours, theirs = _pair()
    x = torch.randn(2, 4, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(ours(x).flatten(0, -2), theirs(x.flatten(0, -2)))
    _assert_same_averages(ours, theirs)


def test_padding_counts_for_nothing():
    ours, theirs = _pair()
    x = torch.randn(20, 3, dtype=torch.float64)
    padded = torch.cat([x, torch.full((7, 3), 1e6, dtype=torch.float64)])
    mask = torch.arange(27) < 20
    torch.testing.assert_close(ours(padded, mask)[:20], theirs(x))
    _assert_same_averages(ours, theirs)


def test_runs_are_independent():
    norms = [_pair()[0] for _ in range(2)]
    stacked = BatchNorm(3).double()
    for name in ("weight", "bias"):
        joined = torch.stack([getattr(norm, name).detach() for norm in norms])
        setattr(stacked, name, torch.nn.Parameter(joined))
    for name in ("running_mean", "running_var"):
        setattr(stacked, name, torch.stack([getattr(norm, name) for norm in norms]))
    x = torch.randn(2, 20, 3, dtype=torch.float64)
    alone = torch.stack([norm(run) for norm, run in zip(norms, x, strict=True)])
    torch.testing.assert_close(stacked(x), alone)
    torch.testing.assert_close(stacked.running_var[1], norms[1].running_var)


def test_a_large_mean_costs_no_digits():
    torch.manual_seed(0)
    x = 0.01 * torch.randn(1000, 3) + 10.0
    mask = torch.arange(1000) < 600
    norm = BatchNorm(3)
    norm(x, mask)
    exact = 0.9 + 0.1 * x[:600].double().var(dim=0)
    torch.testing.assert_close(norm.running_var.double(), exact, rtol=1e-6, atol=0)
    spread = norm(x, mask)[:600].double().var(dim=0)
    expected = 1e-4 / (1e-4 + norm.eps)  # the added eps is a tenth of the variance here
    torch.testing.assert_close(spread, torch.full_like(spread, expected), rtol=0.02, atol=0)


def _masked_inputs():
    torch.manual_seed(1)
    mask = torch.tensor([True, True, False, True, True, False, True])
    return torch.randn(7, 3, dtype=torch.float64, requires_grad=True), mask


def test_gradients_with_padding():
    ours, _ = _pair()
    x, mask = _masked_inputs()

    assert torch.autograd.gradcheck(lambda x: ours(x, mask), x)


def test_gradients_equal_pytorchs_on_the_rows_that_count():
    ours, theirs = _pair()
    x, mask = _masked_inputs()
    weights = torch.randn(5, 3, dtype=torch.float64)
    leaves = [(ours(x, mask)[mask] * weights).sum(), (theirs(x[mask]) * weights).sum()]
    gradients = [
        torch.autograd.grad(leaf, [x, norm.weight, norm.bias])
        for leaf, norm in zip(leaves, (ours, theirs), strict=True)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_one_input_of_many_runs_collects_their_gradients():
    x, mask = _masked_inputs()
    norms = [_pair()[0] for _ in range(2)]
    stacked = BatchNorm(3).double()
    norms[1].weight.data.mul_(2.0)
    for name in ("weight", "bias"):
        joined = torch.stack([getattr(norm, name).detach() for norm in norms])
        setattr(stacked, name, torch.nn.Parameter(joined))
    together = torch.autograd.grad((stacked(x, mask) ** 3).sum(), [x, stacked.weight])
    total = sum((norm(x, mask) ** 3).sum() for norm in norms)
    alone = torch.autograd.grad(total, [x, norms[0].weight, norms[1].weight])
    torch.testing.assert_close(together[0], alone[0])
    torch.testing.assert_close(together[1], torch.stack(alone[1:]))


def _after(norm, linear, x, rows):
    """``norm(linear(x), rows)`` without a pass over the output of ``linear``."""
    moments = norm.moments(x, rows) if norm.training else None
    return nn.functional.linear(x, *norm.folded(linear, moments))


def test_after_a_linear_map_without_its_output():
    torch.manual_seed(2)
    plain, folded = BatchNorm(5).double(), BatchNorm(5).double()
    linear = torch.nn.Linear(3, 5).double()
    for norm in (plain, folded):
        torch.nn.init.constant_(norm.weight, 1.5)
        torch.nn.init.constant_(norm.bias, 0.25)
    x, mask = _masked_inputs()
    for training in (True, False):
        plain.train(training)
        folded.train(training)
        results = []
        for norm, out in (
            (plain, plain(linear(x), mask)),
            (folded, _after(folded, linear, x, CountedRows.of(mask, x.dtype))),
        ):
            leaves = [x, *linear.parameters(), *norm.parameters()]
            results.append([out, *torch.autograd.grad((out**3)[mask].sum(), leaves)])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
        _assert_same_averages(folded, plain)


@pytest.mark.parametrize("after", [False, True])
def test_two_workers_with_the_same_rows_are_one_with_them_twice(after: bool) -> None:
    """Doubling a sum is what adding the same worker's does."""
    torch.manual_seed(0)
    x, gradient = torch.randn(2, 7, 3, dtype=torch.float64)
    mask = torch.tensor([True, True, False, True, True, True, False])
    linear = nn.Linear(3, 3).double()
    found = []
    for twice in (False, True):
        norm = BatchNorm(3).double()
        copies = 2 if twice else 1
        if not twice:
            norm.across = lambda tensor: tensor.mul_(2)
        rows = x.clone().requires_grad_()
        counted = CountedRows.of(mask.repeat(copies), x.dtype)
        given = rows.repeat(copies, 1)
        out = _after(norm, linear, given, counted) if after else norm(given, counted)
        parts = torch.autograd.grad(out, [rows, norm.weight], gradient.repeat(copies, 1))
        half = [part / copies for part in parts]
        found.append([out[:7], *half, norm.running_mean, norm.running_var])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("after", [False, True])
def test_fewer_rows_than_two_leave_the_averages(count: int, after: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    norm, linear = BatchNorm(3).double(), nn.Linear(3, 3).double()
    norm(torch.randn(20, 3, dtype=torch.float64) + 5.0)
    before = [average.clone() for average in (norm.running_mean, norm.running_var)]
    rows = CountedRows.of(torch.arange(4) < count, x.dtype)
    out = _after(norm, linear, x, rows) if after else norm(x, rows)
    norm(x[:1])
    assert torch.equal(norm.running_mean, before[0])
    assert torch.equal(norm.running_var, before[1])
    torch.testing.assert_close(out[:count], norm.bias.expand(count, -1))
    (gradient,) = torch.autograd.grad((out**2 * rows.share).sum(), x)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_a_worker_without_rows_takes_those_of_the_others() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64)
    sums: list[torch.Tensor] = []

    def kept(tensor: torch.Tensor) -> torch.Tensor:
        sums.append(tensor.clone())
        return tensor

    norms = [BatchNorm(3).double() for _ in range(3)]
    norms[0](x)
    for norm, mask, across in (
        (norms[1], torch.arange(6) < 6, kept),
        (norms[2], torch.arange(6) < 0, lambda tensor: tensor.add_(sums.pop(0))),
    ):
        norm.across = across
        norm(x if mask.any() else 1e3 * x, mask)
        _assert_same_averages(norm, norms[0])
