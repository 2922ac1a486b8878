"""GPR-GNN, BernNet and ChebNetII, against their formulas, SciPy and NumPy."""

from __future__ import annotations

from math import comb, cos, pi

import numpy as np
import pytest
import scipy.interpolate
import torch
from tests.baselines.nodes.formula import assert_computes
from torch.linalg import matrix_power

from specformer.baselines import GPRGNN, BernNet, ChebNetII
from specformer.errors import ConfigError

every_kind = pytest.mark.parametrize("kind", [BernNet, ChebNetII])


@every_kind
def test_starts_as_the_identity(graph, kind):
    model = kind(3, 8, 2)
    x = torch.randn(graph.num_nodes, 3)
    torch.testing.assert_close(model(x, graph.propagation(torch.float32)), model.mlp(x))


@every_kind
def test_one_product_an_order(graph, kind, product_widths):
    kind(3, 8, 2)(torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32))
    assert product_widths == [2] * 10


@every_kind
def test_repr_and_state(kind):
    model = kind(3, 8, 2)
    assert repr(model) == f"{kind.__name__}(3, 8, 2, order=10)"
    assert "conversion" in dict(model.named_buffers())
    assert "conversion" not in model.state_dict()


@pytest.mark.parametrize("order", [1, 10])
def test_bernnet_against_the_formula(graph, order):
    model = BernNet(3, 8, 2, order=order).double()
    torch.nn.init.normal_(model.coefficients)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    laplacian, identity = graph.laplacian, torch.eye(graph.num_nodes, dtype=torch.float64)
    h = model.mlp(x)
    expected = sum(
        (theta.relu() * comb(order, k) / 2**order)
        * (matrix_power(2 * identity - laplacian, order - k) @ matrix_power(laplacian, k) @ h)
        for k, theta in enumerate(model.coefficients)
    )
    assert_computes(model, x, graph.propagation(), expected)


@pytest.mark.parametrize("order", [10, 20, 40])
def test_response_is_scipys_bernstein_polynomial(order):
    model = BernNet(3, 8, 2, order=order).double()
    torch.nn.init.normal_(model.coefficients)
    theta = model.coefficients.detach().relu().numpy()
    eigenvalues = np.linspace(0, 2, 31)
    expected = scipy.interpolate.BPoly(theta[:, None], [0, 2])(eigenvalues)
    response = model.response(torch.as_tensor(eigenvalues)).detach()
    torch.testing.assert_close(response, torch.as_tensor(expected)[:, None], rtol=0, atol=1e-13)


def test_conversion_is_exact_in_float32():
    conversion = BernNet.conversion_of(12).numpy()
    assert (conversion == conversion.astype(np.float32)).all()
    t = np.linspace(-1, 1, 17)
    basis = np.polynomial.chebyshev.chebval(t, conversion.T)
    expected = [scipy.interpolate.BPoly(row[:, None], [-1, 1])(t) for row in np.eye(13)]
    np.testing.assert_allclose(basis, expected, atol=1e-12)


def randomised(order: int = 10) -> ChebNetII:
    model = ChebNetII(3, 8, 2, order=order).double()
    torch.nn.init.normal_(model.coefficients)
    return model


@pytest.mark.parametrize("order", [1, 10])
def test_chebnetii_against_the_formula(graph, order):
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


@pytest.mark.parametrize("self_loops", [True, False])
def test_gprgnn_against_the_formula(graph, self_loops):
    model = GPRGNN(3, 8, 2, order=10, self_loops=self_loops).double()
    torch.nn.init.normal_(model.coefficients)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    a = graph.adjacency_with_loops if self_loops else graph.adjacency
    h = model.mlp(x)
    expected = sum(
        gamma * torch.linalg.matrix_power(a, k) @ h for k, gamma in enumerate(model.coefficients)
    )
    assert_computes(model, x, graph.propagation(), expected)


def test_starts_as_personalised_pagerank():
    gamma = GPRGNN(3, 8, 2, order=3, alpha=0.1).coefficients.detach()
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


def test_repr_of_gprgnn():
    assert repr(GPRGNN(3, 8, 2)) == "GPRGNN(3, 8, 2, order=10)"
