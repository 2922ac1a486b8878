"""Landmarks: quadrature for the keys, interpolation for the queries."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.interpolate
import scipy.sparse
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.undropped import undropped

from specformer import SpectralFilter, decompose
from specformer.datasets import csbm
from specformer.errors import SpectrumError
from specformer.spectrum.landmarks import (
    chebyshev_points,
    gauss_quadrature,
    interpolation_matrix,
    pieced_interpolation,
)
from specformer.training.engine.stacking import stack

GRAPH = csbm(0.4, num_nodes=300, num_features=2, seed=4)
SPECTRUM = decompose(GRAPH, dtype=torch.float64)
#: The graph and a copy of it: every eigenvalue comes twice.
TWICE = decompose(
    scipy.sparse.block_diag([GRAPH.adjacency, GRAPH.adjacency], format="csr"),
    dtype=torch.float64,
)


def test_interpolation_is_scipys():
    places = np.sort(np.random.default_rng(0).uniform(0, 2, 40))
    nodes = chebyshev_points(17)
    values = np.sin(9 * nodes)
    theirs = scipy.interpolate.barycentric_interpolate(nodes, values, places)
    np.testing.assert_allclose(interpolation_matrix(places, 17) @ values, theirs, atol=1e-12)


def test_polynomials_come_back_exactly():
    places = np.array([0.0, 1e-9, 0.7, 1.0, 2.0])
    matrix = interpolation_matrix(places, 9)
    for degree in range(9):
        expected = (places - 1) ** degree
        np.testing.assert_allclose(
            matrix @ (chebyshev_points(9) - 1) ** degree, expected, atol=1e-13
        )


@pytest.mark.parametrize("count", [2, 9, 16, 17, 31, 100])
def test_pieces_give_polynomials_back(count):
    values = np.unique(np.random.default_rng(1).beta(0.3, 2.0, 150)) * 2
    points, matrix = pieced_interpolation(values, count)
    assert len(points) <= count
    np.testing.assert_allclose(points[[0, -1]], values[[0, -1]], atol=1e-15)
    assert (np.diff(points) > 0).all()
    for degree in range(min(count, 16)):
        np.testing.assert_allclose(
            matrix @ (points - 1) ** degree, (values - 1) ** degree, atol=1e-12
        )


def test_pieces_find_a_notch_among_many_values():
    rng = np.random.default_rng(0)
    values = np.unique(
        np.concatenate([rng.uniform(0, 2, 1000), rng.normal(1, 0.02, 1000)]).clip(0, 2)
    )
    notch = lambda x: -np.exp(-(((x - 1) / 0.005) ** 2))  # noqa: E731
    points, matrix = pieced_interpolation(values, 512)
    near = np.abs(matrix @ notch(points) - notch(values)).max()
    evenly = interpolation_matrix(values, 512) @ notch(chebyshev_points(512))
    assert near < 1e-4 < 1e-2 < np.abs(evenly - notch(values)).max()


def test_points_are_left_out_where_tokens_are_fewer():
    assert SPECTRUM.landmarks(20, points=10_000).points is None
    with pytest.raises(SpectrumError, match="points=1"):
        SPECTRUM.landmarks(20, points=1)


@pytest.mark.parametrize("decoder", ["joint", "heads"])
@pytest.mark.parametrize("num_blocks", [1, 2])
@torch.no_grad()
def test_attention_at_points_is_attention_at_tokens(decoder, num_blocks):
    torch.manual_seed(0)
    filt = SpectralFilter(16, 2, num_blocks, decoder=decoder, epsilon=10.0).double()
    tokens = SPECTRUM.distinct.tokens
    exact = filt.decode(tokens)
    errors = [
        float((filt.decode(tokens, SPECTRUM.landmarks(keys, points=2 * keys)) - exact).abs().max())
        for keys in (20, 40, 80)
    ]
    scale = float(exact.abs().max())
    assert errors[2] < 1e-9 * scale
    assert errors[2] < errors[1] < errors[0]


# With the least dropout equal eigenvalues are represented one by one, and nothing is dropped.
@pytest.mark.parametrize("dropout", [0.0, 1e-12])
@pytest.mark.parametrize("points", [None, 160])
@pytest.mark.parametrize("spectrum", [SPECTRUM, TWICE], ids=["once", "twice"])
def test_gradients_and_runs(spectrum, points, dropout):
    torch.manual_seed(0)
    options = {"num_heads": 2, "epsilon": 10.0, "transformer_dropout": dropout}
    models = [undropped(2, 8, 2, **options).double() for _ in range(3)]
    x = torch.randn(spectrum.num_nodes, 2, dtype=torch.float64)
    few = spectrum.landmarks(80, points=points)
    assert (few.points is None) == (points is None)
    assert few.points is None or len(few.points) % 8 == 0
    stacked = stack(models)
    out = stacked(x, spectrum, few)
    factors = torch.randn_like(out)
    (out * factors).sum().backward()
    gradients = dict(stacked.named_parameters())
    for run, model in enumerate(models):
        plain = model(x, spectrum)
        torch.testing.assert_close(out[run], plain, rtol=1e-7, atol=1e-7)
        (plain * factors[run]).sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                gradients[name].grad[run], parameter.grad, rtol=1e-6, atol=1e-6
            )


@pytest.mark.parametrize("count", [1, 2, 5, 16, 40])
def test_polynomials_below_twice_the_count_are_exact(count: int) -> None:
    generator = np.random.default_rng(count)
    points, weights = np.sort(generator.uniform(0, 2, 300)), generator.integers(1, 5, 300)
    nodes, rule = gauss_quadrature(points, weights, count)
    assert len(nodes) == len(rule) == count
    assert np.all(rule > 0)
    assert np.all(np.diff(nodes) > 0)
    assert points[0] < nodes[0]
    assert nodes[-1] < points[-1]
    # Chebyshev polynomials of [0, 2] up to degree 2·count − 1: monomials would say little.
    for degree in range(2 * count):
        polynomial = np.polynomial.Chebyshev.basis(degree, domain=[0, 2])
        exact = (weights * polynomial(points)).sum()
        assert (rule * polynomial(nodes)).sum() == pytest.approx(exact, abs=1e-10 * weights.sum())


def test_the_uniform_measure_gives_gauss_legendre() -> None:
    count, size = 12, 200_000
    middles = (np.arange(size) + 0.5) / size * 2 - 1
    nodes, rule = gauss_quadrature(middles, np.full(size, 2 / size), count)
    expected_nodes, expected_rule = scipy.special.roots_legendre(count)
    np.testing.assert_allclose(nodes, expected_nodes, atol=1e-9)
    np.testing.assert_allclose(rule, expected_rule, atol=1e-9)


def test_chebyshev_points_give_gauss_chebyshev_exactly() -> None:
    # The n-point Gauss–Chebyshev rule is itself discrete and exact to degree 2n − 1.
    points, weights = scipy.special.roots_chebyt(64)
    nodes, rule = gauss_quadrature(points, weights, 20)
    expected_nodes, expected_rule = scipy.special.roots_chebyt(20)
    np.testing.assert_allclose(nodes, expected_nodes, atol=1e-13)
    np.testing.assert_allclose(rule, expected_rule, atol=1e-13)


def test_a_binomial_measure_gives_hermite_like_symmetry() -> None:
    levels = np.arange(21)
    nodes, rule = gauss_quadrature(levels / 10, scipy.special.comb(20, levels), 6)
    np.testing.assert_allclose(nodes + nodes[::-1], 2.0, atol=1e-12)
    np.testing.assert_allclose(rule, rule[::-1], rtol=1e-10)
    assert rule.sum() == pytest.approx(2**20)


def test_with_as_many_points_as_the_measure_has_it_comes_back() -> None:
    points, weights = np.array([0.0, 0.5, 2.0]), np.array([1.0, 2.0, 3.0])
    for count in (3, 4, 100):
        nodes, rule = gauss_quadrature(points, weights, count)
        np.testing.assert_array_equal(nodes, points)
        np.testing.assert_array_equal(rule, weights)


def test_points_that_coincide_are_exhausted_early() -> None:
    points = np.repeat([0.0, 1.0, 2.0], 10)
    nodes, rule = gauss_quadrature(points, np.ones(30), 12)
    np.testing.assert_allclose(nodes[rule > 1e-6], [0, 1, 2], atol=1e-12)
    np.testing.assert_allclose(rule[rule > 1e-6], [10, 10, 10], rtol=1e-10)


def test_one_point_is_the_mean() -> None:
    nodes, rule = gauss_quadrature(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 1)
    assert nodes == pytest.approx([1.25], abs=1e-15)
    assert rule == pytest.approx([4.0], abs=1e-15)


@given(st.integers(2, 60), st.integers(1, 59), st.integers(0, 2**32))
@settings(deadline=None)
def test_mass_mean_and_positivity_hold_for_any_measure(size: int, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    points, weights = np.sort(generator.uniform(0, 2, size)), generator.uniform(0.1, 9, size)
    nodes, rule = gauss_quadrature(points, weights, count)
    assert len(nodes) <= count
    assert np.all(rule > 0)
    assert rule.sum() == pytest.approx(weights.sum())
    assert rule @ nodes == pytest.approx(weights @ points)
    assert nodes.min() >= points.min() - 1e-12
    assert nodes.max() <= points.max() + 1e-12


@pytest.mark.parametrize("count", [0, -1])
def test_no_points_are_refused(count: int) -> None:
    with pytest.raises(SpectrumError, match=f"count={count}: a quadrature rule has at least one"):
        gauss_quadrature(np.array([0.0, 1.0]), np.ones(2), count)
