from __future__ import annotations

import pytest
import torch
from tests.baselines.nodes.formula import assert_computes

from specformer.baselines import GPRGNN
from specformer.errors import ConfigError


@pytest.mark.parametrize("self_loops", [True, False])
def test_against_the_formula(graph, self_loops):
    model = GPRGNN(3, 8, 2, order=10, self_loops=self_loops).double()
    torch.nn.init.normal_(model.gamma)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    a = graph.adjacency_with_loops if self_loops else graph.adjacency
    h = model.mlp(x)
    expected = sum(
        gamma * torch.linalg.matrix_power(a, k) @ h for k, gamma in enumerate(model.gamma)
    )
    assert_computes(model, x, graph.propagation(), expected)


def test_starts_as_personalised_pagerank():
    gamma = GPRGNN(3, 8, 2, order=3, alpha=0.1).gamma.detach()
    torch.testing.assert_close(gamma, torch.tensor([0.1, 0.09, 0.081, 0.729]))
    assert gamma.sum().item() == pytest.approx(1)


def test_response_is_what_the_model_applies(graph):
    model = GPRGNN(3, 8, 2, self_loops=False).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    eigenvalues, u = torch.linalg.eigh(graph.laplacian)
    response = model.response(eigenvalues)
    assert response.shape == (graph.num_nodes, 1)
    expected = u @ (response * (u.T @ model.mlp(x)))
    torch.testing.assert_close(model(x, graph.propagation()), expected)


def test_self_loops_have_no_response():
    with pytest.raises(ConfigError, match="self_loops=False"):
        GPRGNN(3, 8, 2).response(torch.zeros(1))


def test_propagation_dropout_acts_in_training_only(graph):
    model = GPRGNN(3, 8, 2, propagation_dropout=0.5)
    x, propagation = torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32)
    assert not torch.equal(model(x, propagation), model(x, propagation))
    model.eval()
    assert torch.equal(model(x, propagation), model(x, propagation))


def test_repr():
    assert repr(GPRGNN(3, 8, 2)) == "GPRGNN(3, 8, 2, order=10)"
