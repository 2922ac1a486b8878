r"""JacobiConv: a linear model with one Jacobi polynomial filter per channel."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn

from specformer.baselines.nodes.polynomial import jacobi
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import SingleGraphModel
from specformer.nn.layers.linear import Linear


class JacobiConv(SingleGraphModel):
    r"""Jacobi polynomial filters.

    From `"How Powerful are Spectral Graph Neural Networks"
    <https://arxiv.org/abs/2205.11172>`_.

    .. math::
        H = X W + b, \qquad
        Z = \sum_{k=0}^K P_k^{(a, b)}(\hat A) \, H \, \mathrm{diag}(\alpha_k) \, V, \qquad
        \alpha_{kl} = \beta_{kl} \prod_{i=1}^{k} \gamma' \tanh \eta_i

    :math:`\hat A = D^{-1/2} A D^{-1/2}`, and :math:`\alpha` is the paper's polynomial coefficient
    decomposition. The paper filters the outputs (:math:`V = I`). Here each hidden channel has a
    filter and :math:`V` combines them, so that the width can be chosen. Filters start as the
    identity. There is no nonlinearity.

    Args:
        order: order K of the polynomials.
        a: exponent of :math:`1 - t` in the weight function of the polynomials.
        b: exponent of :math:`1 + t` in the weight function.
        gamma: bound :math:`\gamma'`; below 1 it damps high orders.
        dropout: dropout rate on the features.
        propagation_dropout: dropout rate on :math:`H`; by default the same as ``dropout``.
    """

    repr_arguments = ("order",)

    def build(
        self,
        *,
        order: int = 10,
        a: float = 1.0,
        b: float = 1.0,
        gamma: float = 1.0,
        propagation_dropout: float | None = None,
    ) -> None:
        in_channels, hidden_channels, out_channels = self.channels
        rate = self.dropout.p if propagation_dropout is None else propagation_dropout
        self.config["propagation_dropout"] = rate
        self.gamma = gamma
        self.polynomials = jacobi(order, a, b)
        self.lin = Linear(in_channels, hidden_channels)
        self.mix = Linear(hidden_channels, out_channels, bias=False)
        self.beta = nn.Parameter(torch.empty(order + 1, hidden_channels))
        self.eta = nn.Parameter(torch.empty(order))
        self.propagation_dropout = nn.Dropout(rate)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.ones_(self.eta)
        # Start from the identity. On the comb filter of a 20 x 20 grid, Adam at 0.01 then reaches
        # 1.02 times the least squares error; with every beta at 1 it reaches twice that error.
        nn.init.zeros_(self.beta)
        nn.init.ones_(self.beta[0])

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        h = self.propagation_dropout(self.lin(self.dropout(x)))
        terms = torch.einsum("...nh,...kho->...kno", h, self._order_weights())
        return self.polynomials.combine(propagation.adjacency, terms.unbind(-3))

    def filter_parameters(self) -> list[nn.Parameter]:
        """The parameters of the polynomials, which may have their own learning rate."""
        return [self.beta, self.eta]

    def response(self, eigenvalues: Tensor) -> Tensor:
        r"""Each output channel's filter at Laplacian eigenvalues: [q] → [..., q, out_channels].

        This is the gain of a signal that is the same in every input channel. With one input
        channel, it is the whole model without its bias.
        """
        weights = self.lin.weight.sum(-1)[..., None, None, :] @ self._order_weights()
        return self.polynomials(1 - eigenvalues) @ weights.squeeze(-2)

    def _order_weights(self) -> Tensor:
        r""":math:`\mathrm{diag}(\alpha_k) V`, [..., K + 1, hidden, out].

        With them sparse products have ``out_channels`` columns, not ``hidden_channels``.
        """
        factors = (self.gamma * self.eta.tanh()).unbind(-1)
        # Not cumprod, whose backward waits for the host and cannot be captured.
        products = accumulate(factors, torch.mul, initial=torch.ones_like(factors[0]))
        alpha = torch.stack(list(products), dim=-1).unsqueeze(-1) * self.beta
        return alpha.unsqueeze(-1) * self.mix.weight.mT.unsqueeze(-3)
