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
from specformer.spectrum.solvers.chebyshev import filtering
from specformer.spectrum.solvers.chebyshev.filtering import (
    Operator,
    Watch,
    allowed,
    estimate_values,
    growth,
    lock_limits,
)

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


EDGE, TOLERANCE = 0.1, 1e-5


def noise_left(residual: float, degree: int) -> float:
    """One step on three eigenvectors: an outlier locked roughly, a column, the damped rest.

    The locked vector is off by ``residual`` towards the other two; the column, orthogonal to it, is
    filtered in exact arithmetic and cleared of the locked vector again.
    """
    theta = np.array([0.8, 0.2, -0.5])
    locked = np.array([1.0, 0.0, 0.0])
    locked[1:] = residual / np.sqrt(2.0) / (theta[0] - theta[1:])
    locked /= np.linalg.norm(locked)
    column = np.array([0.0, 1.0, 0.0])
    column -= locked * (locked @ column)
    mapped = (theta - (EDGE - 1) / 2) / ((EDGE + 1) / 2)
    column *= chebyshev.chebval(mapped, np.eye(degree + 1)[degree])
    column -= locked * (locked @ column)
    column /= np.linalg.norm(column)
    return float(np.linalg.norm(theta * column - column * (column @ (theta * column))))


@pytest.mark.parametrize("residual", [1e-5, 1e-6, 3e-7])
def test_noise_of_a_locked_pair_stays_below_the_tolerance(residual: float) -> None:
    pair = (np.array([0.8]), np.array([residual]))
    (degree,) = allowed(np.array([0.2]), EDGE, pair, TOLERANCE, torch.float32)
    assert noise_left(residual, int(degree)) <= TOLERANCE
    assert noise_left(residual, int(1.5 * degree)) > TOLERANCE  # and not because it is far away


def test_without_locked_pairs_rounding_alone_is_the_limit() -> None:
    none = (np.empty(0), np.empty(0))
    (degree,) = allowed(np.array([0.1]), EDGE, none, TOLERANCE, torch.float32)
    mapped = (1.0 - (EDGE - 1) / 2) / ((EDGE + 1) / 2)
    assert np.cosh(degree * np.arccosh(mapped)) == pytest.approx(3e8 / 2, rel=1e-6)
    assert allowed(np.empty(0), EDGE, none, TOLERANCE, torch.float32).size == 0


def test_a_pair_that_is_exact_limits_nothing() -> None:
    columns = np.array([0.3, 0.2, 0.05])
    none = allowed(columns, EDGE, (np.empty(0), np.empty(0)), TOLERANCE, torch.float32)
    known = allowed(columns, EDGE, (np.ones(3), np.zeros(3)), TOLERANCE, torch.float32)
    np.testing.assert_array_equal(none, known)


def test_the_worst_of_many_pairs_is_found() -> None:
    generator = np.random.default_rng(0)
    values, residuals = generator.uniform(0.2, 1.0, 500), 10.0 ** generator.uniform(-8, -5, 500)
    columns = np.array([0.19, 0.15, 0.12])
    together = allowed(columns, EDGE, (values, residuals), TOLERANCE, torch.float32)
    alone = [
        allowed(columns, EDGE, (values[[i]], residuals[[i]]), TOLERANCE, torch.float32)
        for i in range(500)
    ]
    np.testing.assert_allclose(together, np.min(alone, axis=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pairs_far_out_must_be_known_better(dtype: torch.dtype) -> None:
    values = np.array([1.0, 0.8, 0.5, 0.2, 0.15, 0.1])
    limits = lock_limits(values, 0.15, EDGE, TOLERANCE, dtype)
    assert np.all(np.diff(limits) >= 0)
    assert limits[0] < 0.1 * TOLERANCE
    assert limits[-2:].tolist() == [TOLERANCE, TOLERANCE]
    assert limits.min() >= filtering._FLOOR[dtype]


def test_a_watch_waits_for_progress_of_either_kind() -> None:
    watch = Watch()
    still = np.full(4, 1e-4)
    assert [watch.stalled(10, still) for _ in range(4)] == [False, False, False, True]
    assert watch.stalls == 1
    assert not any(watch.stalled(10 + step, still) for step in range(9))
    assert not any(watch.stalled(20, still * 0.9**step) for step in range(9))
    assert not any(watch.stalled(20 - step, still) for step in range(9))  # others were let go
    assert watch.stalls == 1
