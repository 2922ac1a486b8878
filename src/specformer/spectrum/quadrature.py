r"""Few points that stand for a whole spectrum: Gauss quadrature of its measure."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from specformer.errors import SpectrumError


def gauss_quadrature(
    points: np.ndarray, weights: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""The ``count``-point Gauss rule of the discrete measure :math:`\sum_j w_j \delta_{x_j}`.

    It integrates every polynomial of degree below ``2 * count`` exactly,
    :math:`\sum_i \omega_i p(\xi_i) = \sum_j w_j p(x_j)`. Nodes and weights are the eigenvalues and
    first eigenvector entries of the Jacobi matrix that Lanczos' recurrence gives for
    ``diag(points)`` started at ``sqrt(weights)`` (Golub and Welsch, 1969). With at most ``count``
    points the measure itself comes back.

    Shapes: points and weights ``[p]``; returns nodes and weights ``[min(count, p)]``.

    Example:
        >>> nodes, weights = gauss_quadrature(np.linspace(0, 2, 101), np.ones(101), 5)
        >>> bool(np.isclose(weights @ nodes**9, (np.linspace(0, 2, 101) ** 9).sum()))
        True
    """
    if count < 1:
        raise SpectrumError(f"count={count}: a quadrature rule has at least one point.")
    points = np.asarray(points, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    if points.size <= count:
        return points, weights
    total = weights.sum()
    basis = np.empty((count, points.size))
    diagonal, off_diagonal = np.empty(count), np.empty(count)
    basis[0] = np.sqrt(weights / total)
    steps = count
    for j in range(count):
        vector = points * basis[j]
        diagonal[j] = basis[j] @ vector
        # Twice is enough: full reorthogonalisation keeps the recurrence exact to rounding.
        for _ in range(2):
            vector -= basis[: j + 1].T @ (basis[: j + 1] @ vector)
        off_diagonal[j] = np.linalg.norm(vector)
        if j + 1 == count:
            break
        if off_diagonal[j] < 1e-14:  # the measure is exhausted: fewer effective points than asked
            steps = j + 1
            break
        basis[j + 1] = vector / off_diagonal[j]
    nodes, vectors = scipy.linalg.eigh_tridiagonal(diagonal[:steps], off_diagonal[: steps - 1])
    rule = total * vectors[0] ** 2
    # Weights that underflow carry no mass and have no logarithm.
    keep = rule > total * 1e-30
    return nodes[keep], rule[keep]
