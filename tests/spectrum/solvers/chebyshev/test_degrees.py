"""Degrees and locking limits against the noise they are to prevent, and stalls noticed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from specformer.spectrum.solvers.chebyshev import degrees
from specformer.spectrum.solvers.chebyshev.degrees import Watch, allowed, lock_limits

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
    assert limits.min() >= degrees._FLOOR[dtype]


def test_a_watch_waits_for_progress_of_either_kind() -> None:
    watch = Watch(patience=3)
    still = np.full(4, 1e-4)
    assert [watch.stalled(10, still) for _ in range(4)] == [False, False, False, True]
    assert watch.stalls == 1
    assert not any(watch.stalled(10 + step, still) for step in range(9))
    assert not any(watch.stalled(20, still * 0.9**step) for step in range(9))
    assert not any(watch.stalled(20 - step, still) for step in range(9))  # others were let go
    assert watch.stalls == 1
