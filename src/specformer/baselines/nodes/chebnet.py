r"""ChebNet: Chebyshev polynomial filters in every layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.nodes.polynomial import chebyshev
from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import ConvStack, layer_widths
from specformer.nn.layers.linear import Linear


class ChebConv(nn.Module):
    r"""One layer of ChebNet, :math:`\sum_{k=0}^K T_k(L - I) X W_k + b`.

    Sparse products are done on the narrower side: on :math:`X` (each :math:`T_k X`, then the
    :math:`W_k`) or on the outputs (each :math:`X W_k`, then Clenshaw's algorithm).
    """

    def __init__(self, in_channels: int, out_channels: int, order: int) -> None:
        super().__init__()
        self.polynomials = chebyshev(order)
        self.widens = in_channels < out_channels
        self.lins = nn.ModuleList(
            Linear(in_channels, out_channels, bias=False) for _ in range(order + 1)
        )
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in self.lins.parameters():
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        def shifted(h: Tensor) -> Tensor:
            return -propagation.adjacency(h)  # L - I: the eigenvalues are in [-1, 1]

        weights = [weight.mT for weight in self.lins.parameters()]
        if self.widens:
            basis = torch.cat(list(self.polynomials.basis(shifted, x)), dim=-1)
            out = basis @ torch.cat(weights, dim=-2)
        else:
            terms = x @ torch.cat(weights, dim=-1)
            out = self.polynomials.combine(shifted, terms.chunk(len(weights), dim=-1))
        return out + self.bias.unsqueeze(-2)


class ChebNet(ConvStack):
    r"""Chebyshev graph convolutions.

    From `"Convolutional Neural Networks on Graphs with Fast
    Localized Spectral Filtering" <https://arxiv.org/abs/1606.09375>`_.

    .. math::
        X^{(l+1)} = \mathrm{ReLU}\Bigl(\sum_{k=0}^K T_k(L - I) X^{(l)} W_{l, k} + b_l\Bigr)

    :math:`L - I` is the paper's scaled Laplacian :math:`2L/\lambda_{\max} - I` with the bound 2 for
    :math:`\lambda_{\max}`. The last layer has no ReLU.
    """

    repr_arguments = ("num_layers", "order")

    def build(self, *, num_layers: int = 2, order: int = 10) -> None:
        widths = layer_widths(*self.channels, num_layers)
        self.stack(ChebConv(*width, order) for width in widths)
