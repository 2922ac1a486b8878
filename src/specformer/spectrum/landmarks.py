r"""Few points in place of many eigenvalues: attention in O(q·b) instead of O(q²).

The output of attention at λ is a smooth function of λ. Its sum over keys is an integral over the
spectrum's measure, which a Gauss rule of b points computes. Its values at all eigenvalues follow
from those at r points by piecewise interpolation. Pieces are short where there are many
eigenvalues, because filters change fast there, for example at λ = 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum.eigenpairs import Tokens

#: Chebyshev points of a piece, both its ends included.
_ORDER = 16
#: Matrix products on a GPU are slow unless rows begin at multiples of this many numbers.
ALIGNED = 8


class Landmarks(NamedTuple):
    """Keys of attention and, optionally, the points at which to compute it.

    Shapes: values and weights ``[b]``, of the keys; points ``[r]``, interpolation ``[p, r]`` from
    them to the tokens. Without points attention is computed at every token.
    """

    values: Tensor
    weights: Tensor
    points: Tensor | None = None
    interpolation: Tensor | None = None


#: Keys of attention: every token, or landmarks.
Keys = Tokens | Landmarks


def chebyshev_points(count: int) -> np.ndarray:
    """Chebyshev points of [0, 2], ends included, ascending."""
    return 1.0 - np.cos(np.pi * np.arange(count) / (count - 1))


def interpolation_matrix(values: np.ndarray, count: int) -> np.ndarray:
    r"""The matrix ``[p, r]`` from values at Chebyshev points to values at ``values``.

    The polynomial through the points in its barycentric form (Berrut and Trefethen, 2004),

    .. math::
        \ell_j(\lambda) = \frac{w_j}{\lambda - x_j} \Big/ \sum_i \frac{w_i}{\lambda - x_i},
        \qquad w_j = (-1)^j, \text{ halved at both ends.}
    """
    nodes = chebyshev_points(count)
    signs = np.where(np.arange(count) % 2, -1.0, 1.0)
    signs[[0, -1]] *= 0.5
    distances = np.asarray(values, dtype=np.float64)[:, None] - nodes
    met = distances == 0.0
    matrix = signs / np.where(met, 1.0, distances)
    matrix /= matrix.sum(axis=1, keepdims=True)
    on_node = met.any(axis=1)
    matrix[on_node] = met[on_node]
    return matrix


def pieced_interpolation(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """At most ``count`` points, and the matrix from them to ascending values.

    The pieces are a compromise between equal lengths and equal numbers of values.

    Shapes: values ``[p]``; points ``[r]``, matrix ``[p, r]``.
    """
    values = np.asarray(values, dtype=np.float64)
    order = min(_ORDER, count)
    pieces = max(1, (count - 1) // (order - 1))
    passed = (values - values[0]) / (values[-1] - values[0]) + np.linspace(0.0, 1.0, len(values))
    ends = np.interp(np.linspace(0.0, 2.0, pieces + 1), passed, values)
    steps, within = np.diff(ends), chebyshev_points(order) / 2.0
    points = np.append((ends[:-1, None] + steps[:, None] * within[:-1]).ravel(), ends[-1])
    matrix = np.zeros((len(values), len(points)))
    piece = np.clip(np.searchsorted(ends, values, side="right") - 1, 0, pieces - 1)
    rows = np.arange(len(values))[:, None]
    columns = piece[:, None] * (order - 1) + np.arange(order)
    matrix[rows, columns] = interpolation_matrix(2.0 * (values - ends[piece]) / steps[piece], order)
    return points, matrix


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
        # Reorthogonalised twice, the recurrence is exact to rounding.
        for _ in range(2):
            vector -= basis[: j + 1].T @ (basis[: j + 1] @ vector)
        off_diagonal[j] = np.linalg.norm(vector)
        if j + 1 == count:
            break
        if off_diagonal[j] < 1e-14:  # the measure has fewer effective points than asked for
            steps = j + 1
            break
        basis[j + 1] = vector / off_diagonal[j]
    nodes, vectors = scipy.linalg.eigh_tridiagonal(diagonal[:steps], off_diagonal[: steps - 1])
    rule = total * vectors[0] ** 2
    # Weights that underflow add nothing and have no logarithm.
    keep = rule > total * 1e-30
    return nodes[keep], rule[keep]
