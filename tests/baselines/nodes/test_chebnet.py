from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from tests.baselines.nodes.formula import assert_computes

from specformer.baselines import ChebNet
from specformer.baselines.nodes.chebnet import ChebConv


def dense_layer(graph, x, conv):
    """Each T_k(L − I) through the eigenvalues: cos(k arccos(λ − 1))."""
    eigenvalues, u = torch.linalg.eigh(graph.laplacian)
    angle = (eigenvalues - 1).clamp(-1, 1).arccos()
    return conv.bias + sum(
        u @ (torch.cos(k * angle)[:, None] * (u.T @ x)) @ lin.weight.T
        for k, lin in enumerate(conv.lins)
    )


def test_against_the_formula(graph):
    model = ChebNet(3, 8, 2, order=10).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    first, last = model.convs
    expected = dense_layer(graph, dense_layer(graph, x, first).relu(), last)
    assert_computes(model, x, graph.propagation(), expected)


@pytest.mark.parametrize(("in_channels", "out_channels"), [(3, 8), (8, 3)])
def test_layer_against_pyg(graph, in_channels, out_channels):
    conv = ChebConv(in_channels, out_channels, order=4).double()
    torch.nn.init.normal_(conv.bias)
    oracle = pyg.ChebConv(in_channels, out_channels, K=5).double()
    oracle.load_state_dict(conv.state_dict())
    x = torch.randn(graph.num_nodes, in_channels, dtype=torch.float64)
    lambda_max = torch.tensor(2.0, dtype=torch.float64)
    expected = oracle(x, graph.edge_index, graph.edge_weight, lambda_max=lambda_max)
    torch.testing.assert_close(conv(x, graph.propagation()), expected)


def test_products_are_on_the_narrower_side(graph, product_widths):
    x = torch.randn(graph.num_nodes, 3)
    ChebNet(3, 8, 2, order=4)(x, graph.propagation(torch.float32))
    assert product_widths == [3] * 4 + [2] * 4


def test_repr():
    assert repr(ChebNet(3, 8, 2)) == "ChebNet(3, 8, 2, num_layers=2, order=10)"
