r"""BernNet: one learned non-negative polynomial in the Bernstein basis."""

from __future__ import annotations

from math import comb

import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor, nn

from specformer.baselines.feature_mlp import FeatureMLP
from specformer.baselines.propagation import Propagation
from specformer.baselines.recurrence import chebyshev


class BernNet(nn.Module):
    r"""Bernstein polynomial network.

    From `"BernNet: Learning Arbitrary Graph Spectral Filters via
    Bernstein Approximation" <https://arxiv.org/abs/2106.10994>`_.

    .. math::
        Z = \sum_{k=0}^K \theta_k \frac{1}{2^K} \binom{K}{k} (2I - L)^{K-k} L^k \,
        \mathrm{MLP}(X), \qquad \theta_k = \mathrm{ReLU}(c_k)

    :math:`\theta_k` is about the filter's value at :math:`\lambda = 2k/K`; the :math:`c_k` start
    at 1, where the filter is the identity. The sum is evaluated in the Chebyshev basis of
    :math:`L - I`: K sparse products instead of the formula's :math:`K(K + 3)/2`.

    Args:
        num_layers: Affine maps of the MLP.
        dropout: Rate of dropout before each of them.
        propagation_dropout: Rate of dropout on the MLP's output, before the polynomial.

    Shapes:
        - input: ``[n, in_channels]`` or ``[runs, n, in_channels]``, and the graph
        - output: ``[n, out_channels]`` or ``[runs, n, out_channels]``

    Example:
        >>> BernNet(3, 8, 2).response(torch.tensor([0.0, 1.0])).flatten().tolist()
        [1.0, 1.0]
    """

    chebyshev_of_bernstein: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        order: int = 10,
        dropout: float = 0.0,
        propagation_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.channels = in_channels, hidden_channels, out_channels
        self.order = order
        self.polynomials = chebyshev(order)
        self.mlp = FeatureMLP(*self.channels, num_layers=num_layers, dropout=dropout)
        self.propagation_dropout = nn.Dropout(propagation_dropout)
        self.coefficients = nn.Parameter(torch.empty(order + 1))
        self.register_buffer(
            "chebyshev_of_bernstein",
            torch.tensor(chebyshev_of_bernstein(order)),
            persistent=False,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.mlp.reset_parameters()
        nn.init.ones_(self.coefficients)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
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
        return self.coefficients.relu() @ self.chebyshev_of_bernstein

    def __repr__(self) -> str:
        channels = ", ".join(map(str, self.channels))
        return f"{type(self).__name__}({channels}, order={self.order})"


def chebyshev_of_bernstein(order: int) -> list[list[float]]:
    r"""Chebyshev coefficients, one row each, of the Bernstein polynomials of one order.

    They are those of :math:`\binom{K}{k} s^k (1-s)^{K-k}` with :math:`s = (1 + t)/2`: multiples of
    :math:`2^{1-2K}` no larger than 1, so that float32 holds them exactly up to order 12.

    Example:
        >>> chebyshev_of_bernstein(1)
        [[0.5, -0.5], [0.5, 0.5]]
    """
    up, down = Polynomial([0.5, 0.5]), Polynomial([0.5, -0.5])
    return [
        (comb(order, k) * up**k * down ** (order - k)).convert(kind=Chebyshev).coef.tolist()
        for k in range(order + 1)
    ]
