"""Pooling against loops over the graphs."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random

from specformer.kernels.segments import contiguous_segments
from specformer.nn.conv.graph_conv import pool

BY_GRAPH = contiguous_segments(torch.tensor([3, 1, 2]), 8)


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_is_that_of_each_graph_without_padding(how) -> None:
    nodes = random(8, 2).requires_grad_()
    pooled = pool(nodes, BY_GRAPH, how)
    for graph, rows in enumerate((slice(0, 3), slice(3, 4), slice(4, 6))):
        expected = getattr(nodes[rows], how)(dim=0)
        expected = expected.values if how == "max" else expected
        torch.testing.assert_close(pooled[graph], expected)
    assert torch.autograd.gradcheck(lambda x: pool(x, BY_GRAPH, how), nodes)


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_a_graph_without_nodes_is_zero(how) -> None:
    nodes = random(2, 2).requires_grad_()
    pooled = pool(nodes, contiguous_segments(torch.tensor([0, 2]), 2), how)
    assert not pooled[0].any()
    pooled.sum().backward()
    assert nodes.grad is not None
    assert nodes.grad.isfinite().all()
