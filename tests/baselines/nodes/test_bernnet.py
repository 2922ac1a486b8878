from __future__ import annotations

from math import comb

import numpy as np
import pytest
import scipy.interpolate
import torch
from tests.baselines.nodes.formula import assert_computes
from torch.linalg import matrix_power

from specformer.baselines import BernNet
from specformer.baselines.nodes.bernnet import chebyshev_of_bernstein


@pytest.mark.parametrize("order", [1, 10])
def test_against_the_formula(graph, order):
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
    conversion = np.array(chebyshev_of_bernstein(12))
    assert (conversion == conversion.astype(np.float32)).all()
    t = np.linspace(-1, 1, 17)
    basis = np.polynomial.chebyshev.chebval(t, conversion.T)
    expected = [scipy.interpolate.BPoly(row[:, None], [-1, 1])(t) for row in np.eye(13)]
    np.testing.assert_allclose(basis, expected, atol=1e-12)
