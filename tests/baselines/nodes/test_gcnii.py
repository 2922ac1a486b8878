from __future__ import annotations

from math import log

import pytest
import torch
import torch_geometric.nn as pyg
from tests.baselines.nodes.formula import assert_computes

from specformer.baselines import GCNII
from specformer.baselines.nodes.gcnii import GCN2Conv


@pytest.mark.parametrize(("num_layers", "alpha", "theta"), [(2, 0.1, 0.5), (5, 0.3, 1.5)])
def test_against_the_formula(graph, num_layers, alpha, theta):
    model = GCNII(3, 8, 2, num_layers=num_layers, alpha=alpha, theta=theta).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    identity = torch.eye(8, dtype=torch.float64)
    initial = h = (x @ model.lin_in.weight.T + model.lin_in.bias).relu()
    for layer, conv in enumerate(model.convs, start=1):
        beta = log(theta / layer + 1)
        mixed = (1 - alpha) * graph.adjacency_with_loops @ h + alpha * initial
        h = (mixed @ ((1 - beta) * identity + beta * conv.lin.weight.T)).relu()
    expected = h @ model.lin_out.weight.T + model.lin_out.bias
    assert_computes(model, x, graph.propagation(), expected)


@pytest.mark.parametrize("layer", [1, 4])
def test_layer_against_pyg(graph, layer):
    conv = GCN2Conv(8, alpha=0.2, beta=log(0.7 / layer + 1)).double()
    oracle = pyg.GCN2Conv(8, alpha=0.2, theta=0.7, layer=layer).double()
    oracle.weight1.data = conv.lin.weight.data.T
    h, initial = torch.randn(2, graph.num_nodes, 8, dtype=torch.float64)
    expected = oracle(h, initial, graph.edge_index, graph.edge_weight)
    torch.testing.assert_close(conv(h, initial, graph.propagation()), expected)


def test_repr():
    assert repr(GCNII(3, 8, 2)) == "GCNII(3, 8, 2, num_layers=2)"
