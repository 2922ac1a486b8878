r"""GCN: first-order graph convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import ConvStack, layer_widths
from specformer.nn.layers.linear import Linear


class GCNConv(nn.Module):
    r"""One layer of GCN, :math:`\tilde D^{-1/2} (A + I) \tilde D^{-1/2} X W + b`.

    The sparse product is done with :math:`X` or :math:`XW`, whichever is narrower.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagate = propagation.adjacency_with_loops
        widens = self.lin.in_features < self.lin.out_features
        out: Tensor = self.lin(propagate(x)) if widens else propagate(self.lin(x))
        return out + self.bias.unsqueeze(-2)


class GCN(ConvStack):
    r"""Graph convolutional network.

    From `"Semi-Supervised Classification with Graph Convolutional
    Networks" <https://arxiv.org/abs/1609.02907>`_.

    .. math::
        X^{(l+1)} = \mathrm{ReLU}\bigl(\hat A X^{(l)} W_l + b_l\bigr), \qquad
        \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}

    The last layer has no ReLU.

    Example:
        >>> import numpy as np
        >>> pair = Propagation(np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> GCN(3, 8, 2)(torch.zeros(2, 3), pair).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """

    def build(self, *, num_layers: int = 2) -> None:
        self.stack(GCNConv(*widths) for widths in layer_widths(*self.channels, num_layers))
