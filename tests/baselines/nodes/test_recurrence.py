from __future__ import annotations

import pytest
import scipy.special
import torch

from specformer.baselines.nodes.polynomial import chebyshev, jacobi, monomial

ORDER = 7
t = torch.linspace(-1, 1, 11, dtype=torch.float64)


def evaluated(polynomial):
    return torch.stack([torch.as_tensor(polynomial(k, t.numpy())) for k in range(ORDER + 1)], -1)


def test_monomial():
    torch.testing.assert_close(monomial(ORDER)(t), evaluated(lambda k, t: t**k))


def test_chebyshev():
    torch.testing.assert_close(chebyshev(ORDER)(t), evaluated(scipy.special.eval_chebyt))


@pytest.mark.parametrize(
    ("a", "b"), [(1.0, 1.0), (0.0, 0.0), (-0.5, -0.5), (2.0, -0.5), (0.3, 1.7)]
)
def test_jacobi(a, b):
    expected = evaluated(lambda k, t: scipy.special.eval_jacobi(k, a, b, t))
    torch.testing.assert_close(jacobi(ORDER, a, b)(t), expected)


@pytest.mark.parametrize("family", [monomial(5), chebyshev(5), jacobi(5, 0.3, 1.7), chebyshev(1)])
def test_combine_is_the_sum_over_the_basis(graph, family):
    matrix = graph.propagation().adjacency
    terms = list(torch.randn(len(family.a) + 1, graph.num_nodes, 3, dtype=torch.float64))
    bases = [list(family.basis(matrix, term)) for term in terms]
    expected = sum(basis[k] for k, basis in enumerate(bases))
    torch.testing.assert_close(family.combine(matrix, terms), expected)
