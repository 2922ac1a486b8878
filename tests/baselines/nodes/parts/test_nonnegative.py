"""What BernNet and ChebNetII share."""

from __future__ import annotations

import pytest
import torch

from specformer.baselines import BernNet, ChebNetII

pytestmark = pytest.mark.parametrize("kind", [BernNet, ChebNetII])


def test_starts_as_the_identity(graph, kind):
    model = kind(3, 8, 2)
    x = torch.randn(graph.num_nodes, 3)
    torch.testing.assert_close(model(x, graph.propagation(torch.float32)), model.mlp(x))


def test_one_product_an_order(graph, kind, product_widths):
    kind(3, 8, 2)(torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32))
    assert product_widths == [2] * 10


def test_repr_and_state(kind):
    model = kind(3, 8, 2)
    assert repr(model) == f"{kind.__name__}(3, 8, 2, order=10)"
    assert "conversion" in dict(model.named_buffers())
    assert "conversion" not in model.state_dict()
