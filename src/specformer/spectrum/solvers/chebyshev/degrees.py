r"""How far to filter each column of a block, and how well a pair must be known to be locked.

A pair (v, θ) locked with residual r is an eigenvector u only up to about r / gap. A column kept
orthogonal to v still holds that much of u. A filter lifts u above the column by
:math:`e^{d (g(θ) - g(x))}`, degree d and growth g, and taking out v in place of u leaves

.. math:: e^{d (g(θ) - g(x))} \, r^2 / \mathrm{gap}

in the column: a floor under its residual, however often the step is repeated. So outer pairs are
locked only when they are well known, and the residuals of those locked limit degrees.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from specformer.spectrum.solvers.chebyshev.filtering import growth

#: How much more a filter may lift the top than a Ritz vector at the edge. Rounding brings the top
#: into every column; taking it out again leaves ε² times this as noise.
LIFT = {torch.float32: 3e8, torch.float64: 1e15}
#: By precision: the smallest residual that is asked of any pair, a few roundings.
_FLOOR = {torch.float32: 6e-7, torch.float64: 1e-13}
#: A lift this small never needs a limit.
_HARMLESS = 1e3
#: Number of locked pairs, the strictest at the cut, that limit degrees.
_WORST = 64
#: A step makes progress if residuals fall by this power of e on average.
_PROGRESS = 0.05


def group_end(values: np.ndarray, count: int, equal: float) -> tuple[int, float]:
    """How many of the largest values ``count`` comes to with all copies of the last, and the gap.

    The gap is the distance to the next value, infinite if there is none.

    Example:
        >>> group_end(np.array([0.25, 1.0, 0.5, 0.5]), 2, 1e-8)
        (3, 0.25)
    """
    descending = -np.sort(-values)
    gaps = np.append(-np.diff(descending), np.inf)
    last = min(count, len(values)) - 1
    end = last + int(np.argmax(gaps[last:] > equal)) + 1
    return end, float(gaps[end - 1])


def lock_limits(
    values: np.ndarray, cut: float, edge: float, tolerance: float, dtype: torch.dtype
) -> np.ndarray:
    """Residuals ``[m]`` at which pairs of these Ritz values may be locked, at most ``tolerance``.

    Example:
        >>> lock_limits(np.array([0.9, 0.2]), 0.2, 0.1, 1e-5, torch.float32).tolist()
        [6e-07, 1e-05]
    """
    base = float(growth(cut, edge))
    degree = math.log(LIFT[dtype]) / max(float(growth(1.0, edge)) - base, 1e-9)
    lift = np.exp(np.clip(degree * (growth(values, edge) - base), 0.0, 100.0))
    noise = np.where(lift > _HARMLESS, tolerance * np.maximum(values - cut, 0.0) / lift, np.inf)
    return np.clip(np.sqrt(noise), _FLOOR[dtype], tolerance)


def needed(residuals: np.ndarray, target: np.ndarray, rates: np.ndarray, wanted: int) -> np.ndarray:
    """Degrees ``[m]`` that bring the first ``wanted`` residuals to their targets.

    The columns beyond them are filtered as far as the hardest of these.

    Example:
        >>> needed(np.array([1e-5, np.e, 1.0]), np.array([1e-4, 1.0, 1.0]), np.full(3, 0.5), 2)
        array([0., 2., 2.])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        need: np.ndarray = np.log(np.maximum(residuals / target, 1.0)) / rates
    need[np.isnan(need)] = 0.0
    need[wanted:] = need[:wanted].max()
    return need


def allowed(
    values: np.ndarray,
    edge: float,
    locked: tuple[np.ndarray, np.ndarray],
    tolerance: float,
    dtype: torch.dtype,
) -> np.ndarray:
    """The largest degrees ``[m]`` for columns of these Ritz values that keep the noise small.

    Args:
        values: what the columns have, ``[m]``.
        edge: the end of the damped interval.
        locked: values and residuals of the pairs locked.
        tolerance: residual that must stay within reach.
        dtype: precision of the block.

    Example:
        >>> exact, rough = ((np.array([0.8]), np.array([r])) for r in (1e-8, 1e-5))
        >>> column = np.array([0.2])
        >>> [allowed(column, 0.1, pair, 1e-5, torch.float32).round(1) for pair in (exact, rough)]
        [array([18.9]), array([12.7])]
    """
    rates = growth(values, edge)
    with np.errstate(divide="ignore"):
        degrees = math.log(LIFT[dtype]) / (float(growth(1.0, edge)) - rates)
    if not len(values):
        return degrees
    last = values.argmin()
    theta, residuals = _worst(values[last], edge, locked, tolerance)
    for outer, residual in zip(theta, residuals, strict=True):
        degrees = np.minimum(degrees, _limit(outer, residual, values, edge, tolerance))
    return degrees


def _worst(
    value: float, edge: float, locked: tuple[np.ndarray, np.ndarray], tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """The locked pairs that allow a column of this value least."""
    limits = _limit(*locked, value, edge, tolerance)
    order = np.argsort(limits)[:_WORST]
    return locked[0][order], locked[1][order]


def _limit(
    outer: np.ndarray | float,
    residual: np.ndarray | float,
    value: np.ndarray | float,
    edge: float,
    tolerance: float,
) -> np.ndarray:
    """The degree at which a locked pair's noise in a column reaches ``tolerance``."""
    gap = np.maximum(np.asarray(outer) - value, 0.0)
    lift = np.maximum(tolerance * gap / np.maximum(residual, 1e-30) ** 2, _HARMLESS)
    ahead = np.maximum(growth(outer, edge) - growth(value, edge), 1e-12)
    return np.where(gap > 0.0, np.log(lift) / ahead, np.inf)


class Watch:
    """Notices a stall: no pair converges and residuals do not fall.

    Example:
        >>> watch = Watch(patience=2)
        >>> [watch.stalled(10, np.array([residual])) for residual in (1e-3, 1e-4, 1e-4, 1e-4)]
        [False, False, False, True]
    """

    def __init__(self, patience: int = 3) -> None:
        #: Number of stalls so far.
        self.stalls = 0
        self._patience = patience
        self._begin(-1, np.inf)

    def _begin(self, locked: int, level: float) -> None:
        self._waited, self._locked, self._level = 0, locked, level

    def stalled(self, locked: int, residuals: np.ndarray) -> bool:
        """Call after every step; True after ``patience`` steps in a row without progress."""
        level = float(np.log(np.maximum(residuals, 1e-300)).mean())
        if locked != self._locked or level < self._level - _PROGRESS:
            self._begin(locked, level)
            return False
        self._waited += 1
        if self._waited < self._patience:
            return False
        self.stalls += 1
        self._begin(-1, np.inf)
        return True
