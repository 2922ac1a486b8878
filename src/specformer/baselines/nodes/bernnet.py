r"""BernNet: one learned non-negative polynomial in the Bernstein basis."""

from __future__ import annotations

from itertools import pairwise

import torch
from numpy.polynomial import Chebyshev
from torch import Tensor

from specformer.baselines.nodes.parts.nonnegative import NonNegativePolynomial


class BernNet(NonNegativePolynomial):
    r"""Bernstein polynomial network.

    From `"BernNet: Learning Arbitrary Graph Spectral Filters via
    Bernstein Approximation" <https://arxiv.org/abs/2106.10994>`_.

    .. math::
        Z = \sum_{k=0}^K \theta_k \frac{1}{2^K} \binom{K}{k} (2I - L)^{K-k} L^k \,
        \mathrm{MLP}(X), \qquad \theta_k = \mathrm{ReLU}(c_k)

    :math:`\theta_k` is about the filter's value at :math:`\lambda = 2k/K`; the :math:`c_k` start
    at 1, where the filter is the identity. The sum is evaluated in the Chebyshev basis of
    :math:`L - I`: K sparse products instead of the formula's :math:`K(K + 3)/2`.

    Arguments: see :class:`~specformer.baselines.nodes.parts.nonnegative.NonNegativePolynomial`.

    Example:
        >>> BernNet(3, 8, 2).response(torch.tensor([0.0, 1.0])).flatten().tolist()
        [1.0, 1.0]
    """

    @staticmethod
    def conversion_of(order: int) -> Tensor:
        return torch.tensor(chebyshev_of_bernstein(order), dtype=torch.float64)


def chebyshev_of_bernstein(order: int) -> list[list[float]]:
    r"""Chebyshev coefficients, one row each, of the Bernstein polynomials of one order.

    They are those of :math:`\binom{K}{k} s^k (1-s)^{K-k}` with :math:`s = (1 + t)/2`: multiples of
    :math:`2^{1-2K}` no larger than 1, so that float32 holds them exactly up to order 12.

    Example:
        >>> chebyshev_of_bernstein(1)
        [[0.5, -0.5], [0.5, 0.5]]
    """
    up, down = Chebyshev([0.5, 0.5]), Chebyshev([0.5, -0.5])
    rows = [Chebyshev([1.0])]
    for _ in range(order):  # no sum here has terms larger than 1, so that none costs digits
        inner = [up * low + down * high for low, high in pairwise(rows)]
        rows = [down * rows[0], *inner, up * rows[-1]]
    return [row.coef.tolist() for row in rows]
