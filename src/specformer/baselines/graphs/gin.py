r"""GIN with features of bonds, for many small graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.parts.bonds import Bonds
from specformer.baselines.graphs.parts.graph_baseline import (
    BondEmbedding,
    PooledBaseline,
    normalised,
)
from specformer.nn.conv.graph_pairs import Pooling
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.pretrained import given
from specformer.spectrum.many.packed_graphs import PackedGraphs


def gine_sum(nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
    r"""What neighbours send, :math:`\sum_{j \sim i} \mathrm{ReLU}(h_j + e_{ij})`.

    A message is computed for every node and kind of bond, not for every pair.

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, output as nodes.
    """
    return bonds.sum_by_kind((nodes.unsqueeze(1) + kinds).relu())


class GINLayer(nn.Module):
    r"""One layer, with a batch norm within its MLP of width 2d.

    .. math::
        h_i' = \mathrm{MLP}\Bigl((1 + \epsilon) h_i + \sum_{j \sim i} \mathrm{ReLU}(h_j + e_{ij})
        \Bigr)

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, output as nodes.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.first = nn.Linear(channels, 2 * channels)
        self.norm = BatchNorm(2 * channels)
        self.second = nn.Linear(2 * channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
        summed = (1.0 + self.epsilon) * nodes + gine_sum(nodes, kinds, bonds)
        hidden = normalised(self.norm, self.first(summed), bonds.layout.nodes).relu()
        out: Tensor = self.second(hidden)
        return out


class GIN(PooledBaseline):
    r"""Graph isomorphism network, its messages with features of bonds (GINE).

    From `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_ and
    `"Strategies for Pre-training Graph Neural Networks" <https://arxiv.org/abs/1905.12265>`_.

    .. math::
        h_i^{(l+1)} = h_i^{(l)} + \mathrm{ReLU}\Bigl(\mathrm{BN}\,\mathrm{MLP}\bigl(
        (1 + \epsilon_l) h_i^{(l)} + \sum_{j \sim i} \mathrm{ReLU}(h_j^{(l)} + e_{ij}^{(l)})
        \bigr)\Bigr)

    Arguments and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.

    Example:
        >>> len(GIN([28], [4], 16, 1, num_layers=3).layers)
        3
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
        layers = range(num_layers)
        self.bonds = nn.ModuleList(
            BondEmbedding(edge_cardinalities, hidden_channels) for _ in layers
        )
        self.layers = nn.ModuleList(GINLayer(hidden_channels) for _ in layers)
        self.norms = nn.ModuleList(BatchNorm(hidden_channels) for _ in layers)

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        nodes: Tensor = self.atoms(batch)
        for embedding, layer, norm in zip(self.bonds, self.layers, self.norms, strict=True):
            out = layer(nodes, embedding(batch.bond_table), bonds)
            nodes = self.updated(nodes, norm, out, bonds.layout.nodes)
        return nodes
