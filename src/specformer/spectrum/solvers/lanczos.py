r"""A few eigenpairs at either end, by SciPy's ARPACK on the normalised adjacency.

The smallest eigenvalues of L are the largest of :math:`I - L`, which is the fastest way to ask
ARPACK for them. Krylov methods can miss copies of a repeated eigenvalue, so what was found is
deflated and the rest searched again, until nothing beyond the cut remains.
"""

from __future__ import annotations

import logging

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import EQUAL_TOLERANCE, group_starts
from specformer.spectrum.solvers.problem import Problem

logger = logging.getLogger(__name__)

#: ARPACK's relative accuracy of the eigenvalues; repeated ones must agree to EQUAL_TOLERANCE.
_ACCURACY = 1e-11
#: How many eigenvalues are asked for beyond those wanted, to see where a group ends.
_GUARD = 8
#: Restarts of ARPACK. If it takes more, another solver is faster.
_RESTARTS = 1000
#: With the group at the cut, at most this many times the pairs asked for are found, or this many
#: pairs if that is more. Every round finds few copies and is slower than the one before.
_TIMES, _PAIRS = 4, 128


def required_bytes(problem: Problem) -> int:
    """Peak memory: ARPACK's basis for one end, twice as wide as its result, and this twice.

    Then the result for the other end, and two copies of the matrix.
    """
    few, many = sorted(
        count + _GUARD if count else 0 for count in (problem.lowest, problem.highest)
    )
    return 8 * problem.num_nodes * (4 * many + few) + 24 * problem.laplacian.nnz


def solve(problem: Problem) -> tuple[np.ndarray, Tensor]:
    """At least the pairs asked for, whole groups at both cuts.

    Returns eigenvalues ``[q]`` ascending and eigenvectors ``[n, q]``, float64, on the CPU.
    """
    n, need = problem.num_nodes, required_bytes(problem)
    free = devices.available_bytes(torch.device("cpu"))
    if need > free:
        raise SpectrumError(
            f"{problem.num_pairs:,} eigenpairs of {n:,} nodes need about {devices.gib(need)} "
            f"with solver 'lanczos', {devices.gib(free)} are free."
        )
    shifted = sp.csr_array(sp.eye_array(n, format="csr") - problem.laplacian)
    ends = []
    if problem.lowest:
        values, vectors = _top(shifted, problem.lowest)
        ends.append((1.0 - values, vectors))
    if problem.highest:
        values, vectors = _top(sp.csr_array(-shifted), problem.highest)
        ends.append((1.0 + values[::-1], vectors[:, ::-1]))
    values = np.concatenate([end[0] for end in ends])
    vectors = np.concatenate([end[1] for end in ends], axis=1)
    if len(ends) == 2 and ends[0][0][-1] >= ends[1][0][0] - EQUAL_TOLERANCE:
        raise SpectrumError("the two ends of the spectrum overlap; use solver='dense'.")
    return values, torch.as_tensor(np.ascontiguousarray(vectors))


def _top(matrix: sp.csr_array, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest ``count`` eigenpairs, descending, and all others equal to the last of them."""
    n = matrix.shape[0]
    if count + _GUARD >= n:
        raise SpectrumError(f"{count} of {n} eigenpairs are too many for solver='lanczos'.")
    generator = np.random.default_rng(0)
    values, vectors = _arpack(matrix, np.empty((n, 0)), count + _GUARD, generator)
    while True:
        cut = values[count - 1]
        # The group at the cut is complete only if a smaller value follows it and no copy of
        # anything above the cut hides in the orthogonal complement.
        group_ends = values[-1] < cut - EQUAL_TOLERANCE
        extra = _GUARD if group_ends else max(_GUARD, count // 2)
        most = max(_TIMES * (count + _GUARD), _PAIRS)
        if vectors.shape[1] + extra >= min(n, most):
            raise SpectrumError(
                f"the eigenvalue at the cut is repeated too often for solver='lanczos': "
                f"{vectors.shape[1]} pairs were found, and its copies do not end."
            )
        more_values, more_vectors = _arpack(matrix, vectors, extra, generator)
        missed = more_values >= cut - EQUAL_TOLERANCE
        if group_ends and not missed.any():
            break
        if missed.any():
            logger.debug("lanczos: %d further copies found after deflation", missed.sum())
        keep = missed if group_ends else slice(None)
        basis, _ = np.linalg.qr(np.concatenate([vectors, more_vectors[:, keep]], axis=1))
        values, rotation = np.linalg.eigh(basis.T @ (matrix @ basis))
        values, vectors = values[::-1], basis @ rotation[:, ::-1]
    starts = np.append(group_starts(-values), len(values))
    end = starts[np.searchsorted(starts, count)]
    return values[:end], vectors[:, :end]


def _arpack(
    matrix: sp.csr_array, found: np.ndarray, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The largest ``count`` pairs of ``matrix`` in the orthogonal complement of ``found``."""
    n = matrix.shape[0]

    def product(vector: np.ndarray) -> np.ndarray:
        vector = vector.ravel()
        # Eigenvalues in [-1, 1] move to [1, 3]: ARPACK may not find an eigenvalue 0.
        out = matrix @ vector + 2.0 * vector
        # Directions found before are moved to -1, below all others.
        coefficients = found.T @ vector
        out -= found @ (found.T @ out + coefficients)
        return np.asarray(out)

    operator = spla.LinearOperator((n, n), matvec=product, dtype=np.float64)
    start = generator.standard_normal(n)
    for basis in (max(2 * count + 1, 20), max(4 * count + 1, 40)):
        try:
            values, vectors = spla.eigsh(
                operator,
                k=count,
                which="LA",
                v0=start,
                ncv=min(n, basis),
                tol=_ACCURACY,
                maxiter=_RESTARTS,
            )
        except spla.ArpackError as error:
            logger.info("lanczos: ARPACK stopped (%s)", error)
            continue
        order = np.argsort(-values)
        return values[order] - 2.0, vectors[:, order]
    raise SpectrumError(f"ARPACK did not converge for {count} eigenpairs of {n:,} nodes.")
