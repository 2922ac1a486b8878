r"""ChebNetII: one learned polynomial, given by its values at the Chebyshev nodes."""

from __future__ import annotations

from math import cos, pi

import torch
from torch import Tensor

from specformer.baselines.nodes.parts.nonnegative import NonNegativePolynomial
from specformer.baselines.nodes.parts.recurrence import chebyshev


class ChebNetII(NonNegativePolynomial):
    r"""Chebyshev interpolation network.

    From `"Convolutional Neural Networks on Graphs with Chebyshev
    Approximation, Revisited" <https://arxiv.org/abs/2202.03580>`_.

    .. math::
        Z = \sum_{k=0}^K w_k T_k(L - I) \, \mathrm{MLP}(X), \qquad
        w_k = \frac{2}{K + 1} \sum_{j=0}^K \mathrm{ReLU}(\gamma_j) \, T_k(x_j), \qquad
        x_j = \cos\frac{(j + 1/2) \pi}{K + 1}

    with :math:`w_0` halved, so that the filter's value at :math:`\lambda = 1 + x_j` is exactly
    :math:`\mathrm{ReLU}(\gamma_j)`. The :math:`\gamma_j` start at 1, where the filter is the
    identity. :math:`L - I` is the paper's scaled Laplacian with the bound 2 for
    :math:`\lambda_{\max}`.

    Arguments: see :class:`~specformer.baselines.nodes.parts.nonnegative.NonNegativePolynomial`.

    Example:
        >>> ChebNetII(3, 8, 2).response(torch.tensor([0.0, 1.0])).flatten().tolist()
        [1.0, 1.0]
    """

    @staticmethod
    def conversion_of(order: int) -> Tensor:
        return interpolation(order)


def interpolation(order: int) -> Tensor:
    r"""Values at the Chebyshev nodes to Chebyshev coefficients: row j, column k, in float64.

    Float64 so that a model made float64 later has the nodes to that precision.

    Example:
        >>> (torch.ones(3, dtype=torch.float64) @ interpolation(2)).round(decimals=9).tolist()
        [1.0, 0.0, 0.0]
    """
    nodes = torch.tensor(
        [cos((j + 0.5) * pi / (order + 1)) for j in range(order + 1)], dtype=torch.float64
    )
    matrix = chebyshev(order)(nodes) * (2 / (order + 1))
    matrix[:, 0] /= 2
    return matrix
