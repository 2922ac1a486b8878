from __future__ import annotations

import pytest
import scipy.special
import torch
from tests.baselines.nodes.formula import assert_computes

from specformer.baselines import JacobiConv


def randomised(model: JacobiConv) -> JacobiConv:
    for parameter in (model.beta, model.eta):
        torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize(("a", "b", "gamma"), [(1.0, 1.0, 1.0), (0.5, 2.0, 0.7)])
def test_against_the_formula(graph, a, b, gamma):
    order, hidden = 10, 8
    model = randomised(JacobiConv(3, hidden, 2, order=order, a=a, b=b, gamma=gamma).double())
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    eigenvalues, u = torch.linalg.eigh(graph.adjacency)
    h = u.T @ (x @ model.lin.weight.T + model.lin.bias)
    filtered = []
    for channel in range(hidden):
        response = torch.zeros_like(eigenvalues)
        product = 1.0
        for k in range(order + 1):
            if k > 0:
                product = product * gamma * torch.tanh(model.eta[k - 1])
            values = scipy.special.eval_jacobi(k, a, b, eigenvalues.numpy())
            response = response + model.beta[k, channel] * product * torch.as_tensor(values)
        filtered.append(u @ (response * h[:, channel]))
    expected = torch.stack(filtered, dim=1) @ model.mix.weight.T
    assert_computes(model, x, graph.propagation(), expected)


def test_response_is_what_the_model_applies_to_one_signal(graph):
    model = randomised(JacobiConv(1, 8, 2).double())
    torch.nn.init.zeros_(model.lin.bias)
    x = torch.randn(graph.num_nodes, 1, dtype=torch.float64)
    eigenvalues, u = torch.linalg.eigh(graph.laplacian)
    response = model.response(eigenvalues)
    assert response.shape == (graph.num_nodes, 2)
    torch.testing.assert_close(model(x, graph.propagation()), u @ (response * (u.T @ x)))


def test_response_to_equal_input_channels(graph):
    model = randomised(JacobiConv(3, 8, 2).double())
    torch.nn.init.zeros_(model.lin.bias)
    x = torch.randn(graph.num_nodes, 1, dtype=torch.float64)
    eigenvalues, u = torch.linalg.eigh(graph.laplacian)
    expected = u @ (model.response(eigenvalues) * (u.T @ x))
    torch.testing.assert_close(model(x.expand(-1, 3), graph.propagation()), expected)


def test_starts_as_the_identity(graph):
    model = JacobiConv(3, 8, 2)
    x = torch.randn(graph.num_nodes, 3)
    out = model(x, graph.propagation(torch.float32))
    torch.testing.assert_close(out, model.mix(model.lin(x)))


def test_products_are_as_wide_as_the_output(graph, product_widths):
    JacobiConv(3, 8, 2)(torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32))
    assert product_widths == [2] * 10


def test_repr():
    assert repr(JacobiConv(3, 8, 2)) == "JacobiConv(3, 8, 2, order=10)"
