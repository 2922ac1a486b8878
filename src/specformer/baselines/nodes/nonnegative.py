r"""BernNet and ChebNetII: one non-negative polynomial, summed in the Chebyshev basis."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from math import cos, pi

import torch
from numpy.polynomial import Chebyshev
from torch import Tensor, nn

from specformer.baselines.nodes.mlp import FeatureMLP
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.recurrence import chebyshev
from specformer.baselines.nodes.single_graph import SingleGraphModel
from specformer.nn.layers.reset import Derived


class NonNegativePolynomial(Derived, SingleGraphModel):
    r"""A feature network, then a polynomial of :math:`L - I` given by K + 1 non-negative numbers.

    .. math::
        Z = \sum_{k=0}^K w_k T_k(L - I) \, \mathrm{MLP}(X), \qquad w = \mathrm{ReLU}(c) \, C

    The :math:`c_j` start at 1. The sum takes K sparse products. A model is one by its C.

    Args:
        num_layers: Affine maps of the MLP.
        dropout: Rate of dropout before each of them.
        propagation_dropout: Rate of dropout on the MLP's output, before the polynomial.
    """

    shown = ("order",)
    conversion: Tensor

    def build(
        self, *, num_layers: int = 2, order: int = 10, propagation_dropout: float = 0.0
    ) -> None:
        self.order = order
        self.polynomials = chebyshev(order)
        self.mlp = FeatureMLP(*self.channels, num_layers, self.dropout.p)
        self.propagation_dropout = nn.Dropout(propagation_dropout)
        self.coefficients = nn.Parameter(torch.empty(order + 1))
        self.register_derived()
        self.reset_parameters()

    def derived(self) -> dict[str, Tensor]:
        """C, of Chebyshev coefficients."""
        return {"conversion": self.conversion_of(self.order)}

    @staticmethod
    @abstractmethod
    def conversion_of(order: int) -> Tensor:
        """C, ``[K + 1, K + 1]``: what row j's number adds to each Chebyshev coefficient."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.mlp.reset_parameters()
        nn.init.ones_(self.coefficients)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        h = self.propagation_dropout(self.mlp(x))
        weights = self._chebyshev_weights()[..., None, None].unbind(-3)
        return self.polynomials.combine(
            lambda h: -propagation.adjacency(h), [weight * h for weight in weights]
        )

    def filter_parameters(self) -> list[nn.Parameter]:
        """The polynomial's own parameters, which may have a learning rate of their own."""
        return [self.coefficients]

    def response(self, eigenvalues: Tensor) -> Tensor:
        r"""The filter at Laplacian eigenvalues: [q] → [..., q, 1]."""
        return self.polynomials(eigenvalues - 1) @ self._chebyshev_weights().unsqueeze(-1)

    def _chebyshev_weights(self) -> Tensor:
        return self.coefficients.relu() @ self.conversion.to(self.coefficients.dtype)


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

    Arguments: see :class:`NonNegativePolynomial`.

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

    Arguments: see :class:`NonNegativePolynomial`.

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
