"""Feature networks alone."""

from __future__ import annotations

import numpy as np
import torch

from specformer.baselines import MLP, Propagation
from specformer.baselines.nodes.mlp import FeatureMLP


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


def test_layers_of_the_network():
    mlp = FeatureMLP(3, 8, 2, num_layers=3)
    assert [tuple(lin.weight.shape) for lin in mlp.lins] == [(8, 3), (8, 8), (2, 8)]


def test_dropout_acts_in_training_only():
    mlp = FeatureMLP(3, 64, 2, dropout=0.5)
    x = torch.randn(5, 3)
    assert not torch.equal(mlp(x), mlp(x))
    mlp.eval()
    assert torch.equal(mlp(x), mlp(x))
