from __future__ import annotations

import numpy as np
import torch

from specformer.baselines import MLP, Propagation


def test_against_the_formula(graph):
    model = MLP(3, 8, 2).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    w1, b1, w2, b2 = model.parameters()
    expected = (x @ w1.T + b1).relu() @ w2.T + b2
    torch.testing.assert_close(model(x, graph.propagation()), expected)


def test_the_graph_is_not_looked_at(graph):
    model, x = MLP(3, 8, 2), torch.randn(graph.num_nodes, 3)
    without_edges = Propagation(np.zeros_like(graph.weights))
    assert torch.equal(model(x, graph.propagation()), model(x, without_edges))


def test_layers_and_repr():
    assert repr(MLP(3, 8, 2, num_layers=3)) == "MLP(3, 8, 2, num_layers=3)"
