"""Batch normalisation against PyTorch's own."""

import torch

from specformer.nn.batch_norm import BatchNorm


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
