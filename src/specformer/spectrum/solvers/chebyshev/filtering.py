r"""Chebyshev filters of a normalised adjacency S = I − L, or of −S, that amplify its top.

A polynomial of degree d that stays below 1 on [−1, c] and grows as fast as any beyond,
:math:`T_d((S - e) / h)` with e = (c − 1)/2 and h = (c + 1)/2, damps every eigenvector below the
edge c against those above it.

How far may a column be filtered, and how accurate must a pair be to be locked? A pair (v, θ)
locked with residual r equals an eigenvector u only up to about r / gap. A column kept orthogonal to
v still holds that much of u. A filter of degree d and growth g amplifies u against the column by
:math:`e^{d (g(θ) - g(x))}`, and projecting out v instead of u leaves

.. math:: e^{d (g(θ) - g(x))} \, r^2 / \mathrm{gap}

in the column. Its residual cannot fall below that, however often the step is repeated. So outer
pairs are locked only when they are accurate, and the residuals of locked pairs limit degrees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.spectrum.sparse import to_torch

#: How many columns are filtered at once, by device: few enough to stay in the cache.
COLUMNS = {"cpu": 128, "cuda": 256}
#: Random vectors that eigenvalues are estimated from, and Lanczos steps of each.
_PROBES, _STEPS = 16, 60
#: How much more a filter may amplify the top than a Ritz vector at the edge. Rounding puts the top
#: into every column; projecting it out leaves ε² times this as noise.
LIFT = {torch.float32: 3e8, torch.float64: 1e15}
#: By precision: the smallest residual that any pair must reach, a few roundings.
_FLOOR = {torch.float32: 6e-7, torch.float64: 1e-13}
#: An amplification up to this never needs a limit.
_HARMLESS = 1e3
#: How many locked pairs, those with the strictest limits, are considered for degrees.
_WORST = 64
#: A step makes progress if residuals fall by this power of e on average.
_PROGRESS = 0.05
#: After this many steps in a row without progress, the iteration has stalled.
_PATIENCE = 3


class Operator:
    """A symmetric matrix with eigenvalues in [−1, 1] and its products with blocks."""

    def __init__(self, matrix: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        n = matrix.shape[0]
        # With all of the diagonal stored, also zeros, a shift needs no extra sum. Entries are at
        # most 1 in magnitude, so that adding 4 cancels none of them.
        pattern = sp.csr_array(matrix + 4.0 * sp.eye_array(n, format="csr"))
        pattern.sort_indices()
        rows = np.repeat(np.arange(n), np.diff(pattern.indptr))
        diagonal = rows == pattern.indices
        pattern.data = pattern.data - 4.0 * diagonal
        wide = to_torch(pattern, device, dtype)
        # 32-bit indices take half the memory and are faster in cuSPARSE and MKL.
        self._crow, self._col = wide.crow_indices().int(), wide.col_indices().int()
        self._matrix = self._with(wide.values())
        self._diagonal = torch.as_tensor(np.flatnonzero(diagonal)).to(device)
        #: Number of columns multiplied so far: the cost of a solve on any machine.
        self.products = 0

    @property
    def shape(self) -> tuple[int, int]:
        return (self._matrix.shape[0], self._matrix.shape[1])

    @property
    def device(self) -> torch.device:
        return self._matrix.device

    @property
    def dtype(self) -> torch.dtype:
        return self._matrix.dtype

    def ranges(self, degrees: np.ndarray) -> list[slice]:
        """Ranges of columns to be filtered at once: of similar degree, or too few to split."""
        most = COLUMNS.get(self.device.type, 128)
        least = most // 4
        bounds, highest = [0], 0.0
        for column, degree in enumerate(degrees):
            width = column - bounds[-1]
            lower, upper = sorted((degree, highest))
            split = width == most or (width and upper and not lower)
            split = split or (width >= least and lower < 0.8 * upper)
            if split:
                bounds.append(column)
            highest = degree if split or not width else max(highest, degree)
        bounds.append(len(degrees))
        return [slice(one, two) for one, two in pairwise(bounds) if two > one]

    def __matmul__(self, block: Tensor) -> Tensor:
        self.products += block.shape[1]
        return self._matrix @ block.contiguous()

    def filter(self, block: Tensor, edge: float, degree: int) -> Tensor:
        r"""A degree-d Chebyshev polynomial of S applied to ``[n, m]``, scaled to 1 at S = 1.

        .. math::
            Y_{j+1} = 2 \sigma_{j+1} \frac{S - e}{h} Y_j - \sigma_j \sigma_{j+1} Y_{j-1}
        """
        centre, half = (edge - 1.0) / 2.0, (edge + 1.0) / 2.0
        matrix = self._mapped(centre, half)
        first = sigma = half / (1.0 - centre)
        before = block.clone(memory_format=torch.contiguous_format)
        now = matrix @ before
        now *= sigma
        for _ in range(degree - 1):
            following = 1.0 / (2.0 / first - sigma)
            torch.addmm(
                before, matrix, now, beta=-sigma * following, alpha=2.0 * following, out=before
            )
            before, now, sigma = now, before, following
        self.products += degree * block.shape[1]
        return now

    def _mapped(self, centre: float, half: float) -> Tensor:
        """(S − centre) / half."""
        values = self._matrix.values() / half
        values[self._diagonal] -= centre / half
        return self._with(values)

    def _with(self, values: Tensor) -> Tensor:
        """The same pattern with other values."""
        size = (len(self._crow) - 1,) * 2
        return torch.sparse_csr_tensor(
            self._crow, self._col, values, size=size, check_invariants=False
        )


def growth(values: np.ndarray | float, edge: float) -> np.ndarray:
    """Log of the amplification per degree over the damped interval [−1, edge]."""
    centre, half = (edge - 1.0) / 2.0, (edge + 1.0) / 2.0
    return np.arccosh(np.maximum((np.asarray(values) - centre) / half, 1.0))


def estimate_values(
    operator: Operator, ranks: Sequence[int], generator: torch.Generator
) -> list[float]:
    """Estimate the eigenvalues of these ranks, from the largest down, by Lanczos quadrature."""
    n, dtype, device = operator.shape[0], operator.dtype, operator.device
    steps = min(_STEPS, n - 1)
    vector = torch.randn(n, _PROBES, generator=generator, dtype=dtype, device=device)
    vector = vector / vector.norm(dim=0)
    before, size = torch.zeros_like(vector), vector.new_zeros(_PROBES)
    tridiagonal = torch.zeros(_PROBES, steps, steps, dtype=torch.float64, device=device)
    for step in range(steps):
        product = torch.addcmul(operator @ vector, before, size, value=-1.0)
        along = (product * vector).sum(dim=0)
        product = torch.addcmul(product, vector, along, value=-1.0)
        size = product.norm(dim=0)
        # A vector with few eigenvalues ends early; the rest of its matrix is zero.
        alive = size > 1e-6
        before, vector = vector, torch.where(alive, product / size, 0.0)
        size = torch.where(alive, size, 0.0)
        tridiagonal[:, step, step] = along.double()
        if step + 1 < steps:
            tridiagonal[:, step, step + 1] = tridiagonal[:, step + 1, step] = size.double()
    nodes, frames = torch.linalg.eigh(tridiagonal.cpu())
    weights = frames[:, 0].square().flatten() * (n / _PROBES)
    ordered, place = nodes.flatten().sort(descending=True)
    wanted = torch.tensor(ranks, dtype=torch.float64)
    above = torch.searchsorted(weights[place].cumsum(0), wanted)
    return [float(value) for value in ordered[above.clamp(max=len(ordered) - 1)]]


def group_end(values: np.ndarray, count: int, equal: float) -> tuple[int, float]:
    """The number of the ``count`` largest values with all copies of the last, and the gap after it.

    The gap is the distance to the next value, infinite if there is none.
    """
    descending = -np.sort(-values)
    gaps = np.append(-np.diff(descending), np.inf)
    last = min(count, len(values)) - 1
    end = last + int(np.argmax(gaps[last:] > equal)) + 1
    return end, float(gaps[end - 1])


def lock_limits(
    values: np.ndarray, cut: float, edge: float, tolerance: float, dtype: torch.dtype
) -> np.ndarray:
    """Residuals ``[m]`` at which pairs of these values may be locked, at most ``tolerance``."""
    base = float(growth(cut, edge))
    degree = math.log(LIFT[dtype]) / max(float(growth(1.0, edge)) - base, 1e-9)
    lift = np.exp(np.clip(degree * (growth(values, edge) - base), 0.0, 100.0))
    noise = np.where(lift > _HARMLESS, tolerance * np.maximum(values - cut, 0.0) / lift, np.inf)
    return np.clip(np.sqrt(noise), _FLOOR[dtype], tolerance)


def needed(residuals: np.ndarray, target: np.ndarray, rates: np.ndarray, wanted: int) -> np.ndarray:
    """Degrees ``[m]`` that bring the first ``wanted`` residuals to their targets.

    The columns beyond them get the highest of these degrees.
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

    ``locked`` are values and residuals of locked pairs; ``tolerance`` is the residual that columns
    must be able to reach.
    """
    rates = growth(values, edge)
    with np.errstate(divide="ignore"):
        degrees = math.log(LIFT[dtype]) / (float(growth(1.0, edge)) - rates)
    if not len(values):
        return degrees
    worst = np.argsort(_limit(*locked, values.min(), edge, tolerance))[:_WORST]
    for outer, residual in zip(locked[0][worst], locked[1][worst], strict=True):
        degrees = np.minimum(degrees, _limit(outer, residual, values, edge, tolerance))
    return degrees


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
    """Detects a stall: no pair converges and residuals do not fall."""

    def __init__(self) -> None:
        #: Number of stalls so far.
        self.stalls = 0
        self._begin(-1, np.inf)

    def _begin(self, locked: int, level: float) -> None:
        self._waited, self._locked, self._level = 0, locked, level

    def stalled(self, locked: int, residuals: np.ndarray) -> bool:
        """Call after every step; True after some steps in a row without progress."""
        level = float(np.log(np.maximum(residuals, 1e-300)).mean())
        if locked != self._locked or level < self._level - _PROGRESS:
            self._begin(locked, level)
            return False
        self._waited += 1
        if self._waited < _PATIENCE:
            return False
        self.stalls += 1
        self._begin(-1, np.inf)
        return True
