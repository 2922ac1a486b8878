r"""A few Ritz pairs of a symmetric matrix, the way LanczosNet looks at a graph."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

_BREAKDOWN = 1e-10


def ritz_pairs(matrix: sp.csr_array, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Ritz values [k], ascending, and vectors [n, k] after k Lanczos steps from a random vector.

    .. math::
        Q = \mathrm{orth}(q, M q, \dots, M^{k-1} q), \qquad
        Q^\top M Q = W \, \mathrm{diag}(r) \, W^\top, \qquad V = Q W

    k is the least of ``steps`` and n. Every new direction is made orthogonal to all before, twice;
    where the Krylov space ends, a random one opens the next, so that n steps give all eigenpairs.
    The norm of ``matrix`` is taken to be about 1.

    Example:
        >>> ritz_pairs(sp.csr_array(np.diag([0.0, 0.5, 1.0])), steps=5, seed=0)[0].round(9).tolist()
        [0.0, 0.5, 1.0]
    """
    num_nodes = matrix.shape[0]
    rng = np.random.default_rng(seed)
    basis = np.zeros((num_nodes, min(steps, num_nodes)))
    for step in range(basis.shape[1]):
        before = basis[:, :step]
        if step:
            direction = _orthogonal(matrix @ basis[:, step - 1], before)
        if not step or np.linalg.norm(direction) < _BREAKDOWN:
            direction = _orthogonal(rng.standard_normal(num_nodes), before)
        basis[:, step] = direction / np.linalg.norm(direction)
    values, mix = np.linalg.eigh(basis.T @ (matrix @ basis))
    return values, basis @ mix


def _orthogonal(direction: np.ndarray, basis: np.ndarray) -> np.ndarray:
    for _ in range(2):
        direction = direction - basis @ (basis.T @ direction)
    return direction
