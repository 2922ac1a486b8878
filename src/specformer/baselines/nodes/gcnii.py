r"""GCNII: deep graph convolutions with initial residuals."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor, nn

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import Composite, SingleGraphModel
from specformer.nn.layers.linear import Linear


class GCN2Conv(Composite):
    r"""One layer of GCNII.

    .. math::
        \bigl((1 - \alpha) \hat A H + \alpha H^{(0)}\bigr) \bigl((1 - \beta) I + \beta W\bigr)
    """

    def __init__(self, channels: int, alpha: float, beta: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.beta = beta
        self.lin = Linear(channels, channels, bias=False)

    def forward(self, h: Tensor, initial: Tensor, propagation: Propagation) -> Tensor:
        around = propagation.adjacency_with_loops(h)
        # Under autocast the two have different precisions, which lerp does not take.
        mixed = torch.lerp(around, initial.to(around.dtype), self.alpha)
        return torch.lerp(mixed, self.lin(mixed).to(mixed.dtype), self.beta)


class GCNII(SingleGraphModel):
    r"""Graph convolutions with initial residual and identity mapping.

    From `"Simple and Deep Graph Convolutional Networks"
    <https://arxiv.org/abs/2007.02133>`_.

    .. math::
        H^{(0)} = \mathrm{ReLU}(X W_{\mathrm{in}} + b_{\mathrm{in}}), \qquad
        H^{(l)} = \mathrm{ReLU}\Bigl(\bigl((1 - \alpha) \hat A H^{(l-1)} + \alpha H^{(0)}\bigr)
        \bigl((1 - \beta_l) I + \beta_l W_l\bigr)\Bigr), \qquad
        Z = H^{(L)} W_{\mathrm{out}} + b_{\mathrm{out}}

    :math:`\hat A` is the normalised adjacency with self-loops and
    :math:`\beta_l = \log(\theta / l + 1)`, so that deeper layers are nearer to the identity.
    """

    def build(self, *, num_layers: int = 2, alpha: float = 0.1, theta: float = 0.5) -> None:
        in_channels, hidden_channels, out_channels = self.channels
        self.lin_in = Linear(in_channels, hidden_channels)
        self.convs = nn.ModuleList(
            GCN2Conv(hidden_channels, alpha, log(theta / layer + 1))
            for layer in range(1, num_layers + 1)
        )
        self.lin_out = Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        initial = h = self.lin_in(self.dropout(x)).relu()
        for conv in self.convs:
            h = conv(self.dropout(h), initial, propagation).relu()
        return self.lin_out(self.dropout(h))
