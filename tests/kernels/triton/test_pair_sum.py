"""Weighted sums over pairs against loops over the graphs."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.graphs import KINDS, assert_same, batch_of, index_of, random
from torch import Tensor
from torch.nn.functional import gelu

from specformer.kernels.triton import pair_sum as pairs
from specformer.kernels.triton.pair_sum import pair_sum
from specformer.spectrum.many.packed_graphs import PackedGraphs


def by_loops(batch: PackedGraphs, node: Tensor, kind: Tensor, weight: Tensor, softmax: bool):
    """One graph after another, all its pairs at once."""
    out, row, pair = [], 0, 0
    for n in batch.sizes.tolist():
        bond = batch.bond[pair : pair + n * n].view(n, n)
        message = gelu(node[row : row + n].unsqueeze(0) + kind[bond])  # [i, j, channels]
        share = weight[pair : pair + n * n].view(n, n, node.shape[1])
        share = share.softmax(dim=1) if softmax else share
        out.append((share * message).sum(dim=1))
        row, pair = row + n, pair + n * n
    return torch.cat([*out, node.new_zeros(len(node) - row, node.shape[1])])


def inputs_of(batch: PackedGraphs, channels: int) -> list[Tensor]:
    rows, pairs = len(batch.nodes), len(batch.bond)
    shapes = [(rows, channels), (len(batch.bond_table), channels), (pairs, channels)]
    return [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("channels", "softmax"),
    [
        (3, False),
        pytest.param(3, True, marks=pytest.mark.slow),
        pytest.param(40, False, marks=pytest.mark.slow),
        pytest.param(40, True, marks=pytest.mark.slow),
    ],
)
def test_sums_at_targets(channels: int, softmax: bool, device: torch.device) -> None:
    batch = batch_of()
    index = index_of(batch, device)
    assert_same(
        lambda node, kind, weight: pair_sum(node, kind, weight, index, softmax),
        lambda *tensors: by_loops(batch, *tensors, softmax=softmax),
        inputs_of(batch, channels),
        device,
    )


@pytest.mark.slow
@pytest.mark.parametrize("softmax", [False, True])
def test_many_kinds_of_bonds(softmax: bool, device: torch.device) -> None:
    batch = batch_of([4, 6], kinds=40, spare_pairs=0, spare_nodes=0)
    index = index_of(batch, device)
    assert_same(
        lambda node, kind, weight: pair_sum(node, kind, weight, index, softmax),
        lambda *tensors: by_loops(batch, *tensors, softmax=softmax),
        inputs_of(batch, 6),
        device,
    )


@pytest.mark.slow
def test_many_nodes_a_program(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_PROGRAMS", 20)  # so that a program has four sources
    batch = batch_of([3, 1, 9])
    index = index_of(batch, device)
    assert_same(
        lambda node, kind, weight: pair_sum(node, kind, weight, index),
        lambda *tensors: by_loops(batch, *tensors, softmax=False),
        inputs_of(batch, 80),
        device,
    )


def test_large_logits(device: torch.device) -> None:
    batch = batch_of([3, 2], spare_pairs=4)
    node, kind, weight = (x.to(device, torch.float32) for x in inputs_of(batch, 2))
    weight = (weight * 100.0 + 1e4).requires_grad_()
    out = pair_sum(node, kind, weight, index_of(batch, device), softmax=True)
    expected = by_loops(batch, node.cpu(), kind.cpu(), weight.detach().cpu(), softmax=True)
    torch.testing.assert_close(out.detach().cpu(), expected, rtol=0, atol=1e-3)
    out.sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


@pytest.mark.slow
def test_the_same_each_time(device: torch.device) -> None:
    batch = batch_of([2, 17], spare_pairs=3)
    index = index_of(batch, device)
    found = []
    for _ in range(2):
        leaves = [x.to(device, torch.float32).requires_grad_() for x in inputs_of(batch, 5)]
        out = pair_sum(*leaves, index)
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert len(batch.bond_table) == KINDS
