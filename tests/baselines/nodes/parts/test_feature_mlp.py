from __future__ import annotations

import torch

from specformer.baselines.nodes.parts.feature_mlp import FeatureMLP


def test_against_the_formula():
    mlp = FeatureMLP(3, 8, 2).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    w1, b1, w2, b2 = mlp.parameters()
    torch.testing.assert_close(mlp(x), (x @ w1.T + b1).relu() @ w2.T + b2)


def test_layers():
    mlp = FeatureMLP(3, 8, 2, num_layers=3)
    assert [tuple(lin.weight.shape) for lin in mlp.lins] == [(8, 3), (8, 8), (2, 8)]


def test_dropout_acts_in_training_only():
    mlp = FeatureMLP(3, 64, 2, dropout=0.5)
    x = torch.randn(5, 3)
    assert not torch.equal(mlp(x), mlp(x))
    mlp.eval()
    assert torch.equal(mlp(x), mlp(x))
