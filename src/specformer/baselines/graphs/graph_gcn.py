r"""GCN for many small graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.nn.layers.linear import Linear


class GraphGCNConv(nn.Module):
    r"""One layer of GCN, :math:`\tilde D^{-1/2} (A + I) \tilde D^{-1/2} X W + b`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, nodes: Tensor, kinds: None, bonds: Bonds) -> Tensor:  # noqa: ARG002
        scale = (bonds.degree + 1.0).rsqrt()
        scaled: Tensor = self.lin(nodes) * scale
        return (bonds.sum(bonds.at_sources(scaled)) + scaled) * scale + self.bias


class GraphGCN(GraphBaseline):
    r"""Graph convolutional network with residuals. It ignores edge features.

    From `"Benchmarking Graph Neural Networks" <https://arxiv.org/abs/2003.00982>`_.

    .. math::
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}\bigl(\mathrm{BN}(\hat A h^{(l)} W_l + b_l)\bigr)
    """

    def build(self) -> None:
        self.stack(lambda: GraphGCNConv(self.channels), bonds=None)
