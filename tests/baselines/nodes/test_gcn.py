from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from tests.baselines.nodes.formula import assert_computes

from specformer.baselines import GCN
from specformer.baselines.nodes.gcn import GCNConv


def test_against_the_formula(graph):
    model = GCN(3, 8, 2).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    (w1, b1), (w2, b2) = ((conv.lin.weight, conv.bias) for conv in model.convs)
    a = graph.adjacency_with_loops
    expected = a @ (a @ x @ w1.T + b1).relu() @ w2.T + b2
    assert_computes(model, x, graph.propagation(), expected)


@pytest.mark.parametrize(("in_channels", "out_channels"), [(3, 8), (8, 3)])
def test_layer_against_pyg(graph, in_channels, out_channels):
    conv = GCNConv(in_channels, out_channels).double()
    torch.nn.init.normal_(conv.bias)
    oracle = pyg.GCNConv(in_channels, out_channels).double()
    oracle.load_state_dict(conv.state_dict())
    x = torch.randn(graph.num_nodes, in_channels, dtype=torch.float64)
    expected = oracle(x, graph.edge_index, graph.edge_weight)
    torch.testing.assert_close(conv(x, graph.propagation()), expected)


def test_layers_and_repr():
    model = GCN(3, 8, 2, num_layers=3)
    assert [tuple(conv.lin.weight.shape) for conv in model.convs] == [(8, 3), (8, 8), (2, 8)]
    assert repr(model) == "GCN(3, 8, 2, num_layers=3)"
