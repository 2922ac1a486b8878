r"""GCN for many small graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.parts.bonds import Bonds
from specformer.baselines.graphs.parts.graph_baseline import PooledBaseline
from specformer.nn.conv.graph_pairs import Pooling
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.pretrained import given
from specformer.spectrum.many.packed_graphs import PackedGraphs


class GraphGCNConv(nn.Module):
    r"""One layer of many graphs, :math:`\tilde D^{-1/2} (A + I) \tilde D^{-1/2} X W + b`.

    Shapes: nodes ``[N, channels]``, output as nodes.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, nodes: Tensor, bonds: Bonds) -> Tensor:
        scale = (bonds.degree + 1.0).rsqrt()
        scaled: Tensor = self.lin(nodes) * scale
        return (bonds.sum(scaled) + scaled) * scale + self.bias


class GraphGCN(PooledBaseline):
    r"""Graph convolutional network with residuals, blind to the kinds of bonds.

    From `"Benchmarking Graph Neural Networks" <https://arxiv.org/abs/2003.00982>`_.

    .. math::
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}\bigl(\mathrm{BN}(\hat A h^{(l)} W_l + b_l)\bigr)

    Arguments and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.

    Example:
        >>> model = GraphGCN([28], [4], 172, 1, 16)  # the benchmark's
        >>> sum(parameter.numel() for parameter in model.parameters())
        505079
    """

    def __init__(
        self,
        node_cardinalities: Sequence[int],
        edge_cardinalities: Sequence[int],
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 4,
        *,
        pooling: Pooling = "mean",
        dropout: float = 0.0,
        in_channels: int = 0,
    ) -> None:
        super().__init__(given(locals()))
        self.convs = nn.ModuleList(GraphGCNConv(hidden_channels) for _ in range(num_layers))
        self.norms = nn.ModuleList(BatchNorm(hidden_channels) for _ in range(num_layers))

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        nodes: Tensor = self.atoms(batch)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            nodes = self.updated(nodes, norm, conv(nodes, bonds), bonds.layout.nodes)
        return nodes
