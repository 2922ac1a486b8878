from __future__ import annotations

from math import cos, pi

import numpy as np
import pytest
import torch
from tests.baselines.nodes.formula import assert_computes

from specformer.baselines import ChebNetII


def randomised(order: int = 10) -> ChebNetII:
    model = ChebNetII(3, 8, 2, order=order).double()
    torch.nn.init.normal_(model.coefficients)
    return model


@pytest.mark.parametrize("order", [1, 10])
def test_against_the_formula(graph, order):
    model = randomised(order)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    eigenvalues, u = torch.linalg.eigh(graph.laplacian)
    angle = (eigenvalues - 1).clamp(-1, 1).arccos()
    response = torch.zeros_like(eigenvalues)
    for k in range(order + 1):
        # T_k(cos a) = cos(k a), at the nodes and at the eigenvalues.
        weight = sum(
            model.coefficients[j].relu() * cos(k * (j + 0.5) * pi / (order + 1))
            for j in range(order + 1)
        )
        weight = weight * (1 if k == 0 else 2) / (order + 1)
        response = response + weight * torch.cos(k * angle)
    expected = u @ (response[:, None] * (u.T @ model.mlp(x)))
    assert_computes(model, x, graph.propagation(), expected)
    torch.testing.assert_close(model.response(eigenvalues), response[:, None])


def test_response_goes_through_the_learned_values():
    model = randomised()
    nodes = torch.as_tensor(np.cos((np.arange(11) + 0.5) * np.pi / 11))
    torch.testing.assert_close(model.response(1 + nodes).flatten(), model.coefficients.relu())


def test_response_is_numpys_interpolant():
    """Any polynomial of degree K is recovered from its values at the nodes."""
    model = randomised()
    model.coefficients.data.abs_()
    nodes = np.cos((np.arange(11) + 0.5) * np.pi / 11)
    fitted = np.polynomial.Chebyshev.fit(
        nodes, model.coefficients.detach().numpy(), deg=10, domain=[-1, 1]
    )
    eigenvalues = np.linspace(0, 2, 31)
    response = model.response(torch.as_tensor(eigenvalues)).detach().flatten()
    torch.testing.assert_close(response, torch.as_tensor(fitted(eigenvalues - 1)))
