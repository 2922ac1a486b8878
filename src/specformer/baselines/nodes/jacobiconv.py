r"""JacobiConv: a linear model with a Jacobi polynomial for every channel."""

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
    decomposition. The paper filters the outputs themselves (:math:`V = I`); here the
    ``hidden_channels`` have a filter each and :math:`V` mixes them, so that the width is free.
    Each filter starts as the identity.
    There is no nonlinearity: the output is affine in :math:`X`.

    Args:
        a: Exponent of :math:`1 - t` in the weight the polynomials are orthogonal under, likewise
        b: of :math:`1 + t`.
        gamma: The bound :math:`\gamma'`; below 1 it damps high orders.
        dropout: Rate of dropout on the features.
        propagation_dropout: Rate of dropout on :math:`H`; None for the same as ``dropout``.
    """

    shown = ("order",)

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
        # Start from the identity. With every beta at 1 instead, Adam at 0.01 ends at twice the
        # least squares error of the comb filter on a 20 x 20 grid, from here at 1.02 times.
        nn.init.zeros_(self.beta)
        nn.init.ones_(self.beta[0])

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        h = self.propagation_dropout(self.lin(self.dropout(x)))
        terms = torch.einsum("...nh,...kho->...kno", h, self._order_weights())
        return self.polynomials.combine(propagation.adjacency, terms.unbind(-3))

    def filter_parameters(self) -> list[nn.Parameter]:
        """The polynomials' own parameters, which may have a learning rate of their own."""
        return [self.beta, self.eta]

    def response(self, eigenvalues: Tensor) -> Tensor:
        r"""Each output channel's filter at Laplacian eigenvalues: [q] → [..., q, out_channels].

        It is what multiplies a signal that is the same in every input channel; with one input
        channel, the whole model without its bias.
        """
        weights = self.lin.weight.sum(-1)[..., None, None, :] @ self._order_weights()
        return self.polynomials(1 - eigenvalues) @ weights.squeeze(-2)

    def _order_weights(self) -> Tensor:
        r""":math:`\mathrm{diag}(\alpha_k) V`, [..., K + 1, hidden, out].

        With them the sparse products are ``out_channels`` wide, not ``hidden_channels``.
        """
        factors = (self.gamma * self.eta.tanh()).unbind(-1)
        # Not cumprod: its backward asks the host whether a factor is zero, and cannot be captured.
        products = accumulate(factors, torch.mul, initial=torch.ones_like(factors[0]))
        alpha = torch.stack(list(products), dim=-1).unsqueeze(-1) * self.beta
        return alpha.unsqueeze(-1) * self.mix.weight.mT.unsqueeze(-3)
