r"""What BernNet and ChebNetII share: one non-negative polynomial, summed in the Chebyshev basis."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from specformer.baselines.nodes.parts.arguments import checked_arguments
from specformer.baselines.nodes.parts.feature_mlp import FeatureMLP
from specformer.baselines.nodes.parts.propagation import Propagation
from specformer.baselines.nodes.parts.recurrence import chebyshev
from specformer.baselines.nodes.parts.single_graph import SingleGraphModel
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

    Shapes:
        - input: ``[n, in_channels]`` or ``[runs, n, in_channels]``, and the graph
        - output: ``[n, out_channels]`` or ``[runs, n, out_channels]``
    """

    shown = ("order",)
    conversion: Tensor

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
        self.config = checked_arguments(locals())
        self.order = order
        self.polynomials = chebyshev(order)
        self.mlp = FeatureMLP(in_channels, hidden_channels, out_channels, num_layers, dropout)
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
