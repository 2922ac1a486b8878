"""Gauss rules: exact for polynomials, close to the classical ones, and stable for many points."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from specformer.errors import SpectrumError
from specformer.spectrum.quadrature import gauss_quadrature


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
