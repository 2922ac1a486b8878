"""Chebyshev filters against NumPy's polynomials, and where probes put eigenvalues."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.polynomial import chebyshev
from tests.spectrum.known_graphs import adjacency

from specformer.graphs import normalised_laplacian
from specformer.spectrum.solvers.chebyshev.filtering import Operator, estimate_values, growth

CPU = torch.device("cpu")


def matrix(graph: nx.Graph) -> sp.csr_array:
    laplacian = normalised_laplacian(adjacency(graph))
    return sp.csr_array(sp.eye_array(laplacian.shape[0]) - laplacian)


KARATE = matrix(nx.karate_club_graph())


@pytest.mark.parametrize("edge", [-0.3, 0.2, 0.9])
@pytest.mark.parametrize("degree", [1, 2, 3, 12])
def test_a_filter_is_a_scaled_chebyshev_polynomial(edge: float, degree: int) -> None:
    block = torch.randn(34, 5, dtype=torch.float64)
    before, operator = block.clone(), Operator(KARATE, CPU, torch.float64)
    ours = operator.filter(block, edge, degree)
    values, vectors = np.linalg.eigh(KARATE.toarray())
    unit = np.eye(degree + 1)[degree]
    response = chebyshev.chebval((values - (edge - 1) / 2) / ((edge + 1) / 2), unit)
    top = chebyshev.chebval((1 - (edge - 1) / 2) / ((edge + 1) / 2), unit)
    expected = vectors @ ((response / top)[:, None] * (vectors.T @ block.numpy()))
    np.testing.assert_allclose(ours, expected, atol=1e-13)
    assert torch.equal(block, before)
    assert operator.products == 5 * degree


def test_products_are_those_of_the_matrix() -> None:
    loops = sp.csr_array(np.array([[0.5, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]))
    block = torch.randn(3, 4, dtype=torch.float64)
    product = Operator(loops, CPU, torch.float64) @ block
    np.testing.assert_allclose(product, loops.toarray() @ block.numpy(), atol=1e-15)


def test_growth_is_the_rate_of_the_polynomial() -> None:
    centre, half = (0.4 - 1) / 2, (0.4 + 1) / 2
    large = chebyshev.chebval((0.8 - centre) / half, np.eye(41)[40])
    assert np.log(2 * large) / 40 == pytest.approx(growth(0.8, 0.4), rel=1e-6)


def test_ranges_hold_columns_of_like_degree() -> None:
    operator = Operator(KARATE, CPU, torch.float32)
    degrees = np.concatenate([np.zeros(50), np.full(300, 10), np.full(40, 30)])
    ranges = operator.ranges(degrees)
    covered = np.concatenate([np.arange(part.start, part.stop) for part in ranges])
    assert covered.tolist() == list(range(390))
    assert all(len(set(degrees[part])) == 1 for part in ranges)
    assert max(part.stop - part.start for part in ranges) == 128


def test_probes_place_eigenvalues_by_rank() -> None:
    graph = matrix(nx.powerlaw_cluster_graph(1200, 3, 0.2, seed=0))
    exact = -np.sort(-np.linalg.eigvalsh(graph.toarray()))
    operator = Operator(graph, CPU, torch.float64)
    for rank in (60, 300):
        (value,) = estimate_values(operator, [rank], torch.Generator().manual_seed(0))
        assert exact[int(rank * 1.25)] < value < exact[int(rank * 0.8)]
