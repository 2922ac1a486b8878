r"""Few points in place of many eigenvalues: attention in O(q·b) instead of O(q²).

What attention gives at λ is a smooth function of λ. Its sum over keys is an integral against the
spectrum's measure, which a Gauss rule of b points takes; and its values at all eigenvalues follow
from those at r Chebyshev points by interpolation. Both errors fall exponentially once b and r
exceed the function's bandwidth: for a filter trained on Cora, 512 keys and 1024 points leave
one part in a hundred million.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from specformer.spectrum.distinct import Tokens


class Landmarks(NamedTuple):
    """Keys of attention and, perhaps, the points at which to compute it.

    Shapes: values and weights ``[b]``, of the keys; points ``[r]``, interpolation ``[p, r]`` from
    them to the tokens. Without points attention is computed at every token.
    """

    values: Tensor
    weights: Tensor
    points: Tensor | None = None
    interpolation: Tensor | None = None


#: What attention may look at: every token, or landmarks.
Keys = Tokens | Landmarks


def chebyshev_points(count: int) -> np.ndarray:
    """Chebyshev points of [0, 2], ends included, ascending.

    Example:
        >>> chebyshev_points(3)
        array([0., 1., 2.])
    """
    return 1.0 - np.cos(np.pi * np.arange(count) / (count - 1))


def interpolation_matrix(values: np.ndarray, count: int) -> np.ndarray:
    r"""The matrix ``[p, r]`` from a function's values at Chebyshev points to those at ``values``.

    The polynomial through the points in its barycentric form (Berrut and Trefethen, 2004),

    .. math::
        \ell_j(\lambda) = \frac{w_j}{\lambda - x_j} \Big/ \sum_i \frac{w_i}{\lambda - x_i},
        \qquad w_j = (-1)^j, \text{ halved at both ends.}

    Example:
        >>> matrix = interpolation_matrix(np.array([0.3, 2.0]), 5)
        >>> np.round(matrix @ chebyshev_points(5) ** 3, 12)
        array([0.027, 8.   ])
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
