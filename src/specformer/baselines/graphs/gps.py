r"""GPS: local messages and global attention, with random-walk encodings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds, return_probabilities
from specformer.baselines.graphs.gin import gine_sum
from specformer.baselines.graphs.graph_baseline import (
    GraphBaseline,
    PairAttention,
    two_layer_mlp,
)
from specformer.nn.conv.graph_conv import Pooling
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear
from specformer.spectrum.many.packed_graphs import PackedGraphs


class GPSLayer(nn.Module):
    r"""Messages from neighbours plus attention among all nodes, then an MLP of width 2d.

    .. math::
        h^M &= \mathrm{BN}\bigl(h + \mathrm{MLP}_M(h_i + \textstyle\sum_{j \sim i}
        \mathrm{ReLU}(h_j + e_{ij}))\bigr), \qquad
        h^T = \mathrm{BN}(h + \mathrm{Attention}(h)) \\
        h' &= \mathrm{BN}\bigl(h^M + h^T + \mathrm{MLP}(h^M + h^T)\bigr)
    """

    def __init__(
        self, channels: int, num_heads: int, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.local = two_layer_mlp(channels, channels)
        self.attention = PairAttention(channels, num_heads, attention_dropout)
        self.mlp = nn.Sequential(
            Linear(channels, 2 * channels),
            nn.ReLU(),
            nn.Dropout(dropout),
            Linear(2 * channels, channels),
        )
        self.local_norm = BatchNorm(channels)
        self.attention_norm = BatchNorm(channels)
        self.norm = BatchNorm(channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
        rows = bonds.layout.nodes
        local = self.dropout(self.local(nodes + gine_sum(nodes, kinds, bonds)))
        attended = bonds.layout.from_dense(
            self.attention(bonds.layout.to_dense(nodes), bonds.attention_bias)
        )
        mixed = self.local_norm(nodes + local, rows)
        mixed = mixed + self.attention_norm(nodes + self.dropout(attended), rows)
        return self.norm(mixed + self.dropout(self.mlp(mixed)), rows)


class GPS(GraphBaseline):
    """General, powerful, scalable graph transformer with GINE and attention.

    From `"Recipe for a General, Powerful, Scalable Graph
    Transformer" <https://arxiv.org/abs/2205.12454>`_. Part of each node's vector is an encoding of
    its :func:`~specformer.baselines.graphs.bonds.return_probabilities`.

    Args:
        num_heads: number of attention heads.
        attention_dropout: dropout rate on the attention weights.
        walk_steps: number of random walk steps.
        walk_channels: number of channels for the random-walk encoding.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    encoding_setting = "walk_channels"

    def build(
        self,
        *,
        num_heads: int = 4,
        walk_steps: int = 20,
        walk_channels: int = 28,
        pooling: Pooling = "sum",
        attention_dropout: float = 0.0,
    ) -> None:
        self.pooling = pooling
        self.bonds = self.bond_embedding()
        self.walk_steps = walk_steps
        self.walk_norm = BatchNorm(walk_steps)
        self.walks = Linear(walk_steps, walk_channels)
        self.layers = nn.ModuleList(
            GPSLayer(self.channels, num_heads, self.dropout.p, attention_dropout)
            for _ in range(self.depth)
        )

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        walks = return_probabilities(bonds, self.walk_steps)
        encoded = self.walks(self.walk_norm(walks, bonds.layout.nodes))
        nodes = torch.cat([self.atoms(batch), encoded], dim=-1)
        kinds = self.bonds(batch.bond_table)
        for layer in self.layers:
            nodes = layer(nodes, kinds, bonds)
        return nodes
