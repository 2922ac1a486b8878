r"""Graphormer for many small graphs."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds, ShortestPaths, aligned_rows
from specformer.baselines.graphs.graph_baseline import GraphBaseline, PairAttention
from specformer.kernels.segments import at_least_float32
from specformer.nn.layers.linear import Linear, feed_forward
from specformer.spectrum.many.packed_graphs import PackedGraphs

_INIT_STD = 0.02


class GraphormerLayer(nn.Module):
    r"""Attention and an MLP of width d, each with layer norm first and a residual.

    Shapes: tokens ``[B, n, channels]``, bias ``[B, heads, n, n]``, output as tokens.
    """

    def __init__(
        self, channels: int, num_heads: int, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = PairAttention(channels, num_heads, attention_dropout)
        self.norm = nn.LayerNorm(channels)
        self.mlp = feed_forward(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        tokens = tokens + self.dropout(self.attention(self.attention_norm(tokens), bias))
        return tokens + cast(Tensor, self.dropout(self.mlp(self.norm(tokens))))


class GraphGraphormer(GraphBaseline):
    r"""Transformer over the nodes of a graph and one token for the whole graph.

    From `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_. A vector for its degree is added to each
    node. Biases for the distance and for the bonds on a shortest path are added to each score:

    .. math::
        A_{ij} = \frac{q_i^\top k_j}{\sqrt{d_h}} + b_{\phi(i, j)} +
        \frac{1}{|p|} \sum_{k \le |p|} e_{p_k}^\top w_k, \qquad p \in SP_{ij}

    If there are several shortest paths, their mean is taken, so that the output does not depend on
    the order of nodes. The prediction is made from the graph's token.

    Args:
        num_heads: number of attention heads.
        max_degree: larger degrees share one vector.
        max_distance: pairs farther apart count as not connected.
        max_hops: number of bonds of a path that are used.
        dropout: dropout rate on the tokens and on every update.
        attention_dropout: dropout rate on the attention weights.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    excluded = ("pooling",)

    def build(
        self,
        *,
        num_heads: int = 8,
        max_degree: int = 16,
        max_distance: int = 20,
        max_hops: int = 5,
        attention_dropout: float = 0.0,
    ) -> None:
        channels = self.channels
        self.max_distance, self.num_heads = max_distance, num_heads
        self.degrees = nn.Embedding(max_degree + 1, channels)
        self.bonds = self.bond_embedding(num_heads)
        self.distance_bias = nn.Parameter(torch.empty(max_distance + 2, num_heads))
        self.hop_weights = nn.Parameter(torch.empty(max_hops, num_heads, num_heads))
        self.graph_token = nn.Parameter(torch.empty(channels))
        self.graph_bias = nn.Parameter(torch.empty(num_heads))
        self.layers = nn.ModuleList(
            GraphormerLayer(channels, num_heads, self.dropout.p, attention_dropout)
            for _ in range(self.depth)
        )
        self.head = nn.LayerNorm(channels)
        self.readout = Linear(channels, self.readout.out_features)
        for weight in (
            self.degrees.weight,
            self.distance_bias,
            self.hop_weights,
            self.graph_token,
            self.graph_bias,
        ):
            nn.init.normal_(weight, std=_INIT_STD)

    def pooled(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        degree = bonds.degree.squeeze(-1).long().clamp_max(self.degrees.num_embeddings - 1)
        nodes = bonds.layout.to_dense(self.atoms(batch) + self.degrees(degree))
        token = self.graph_token.expand(len(nodes), 1, -1)
        tokens = self.dropout(torch.cat([token, nodes], dim=1))
        bias = self.bias(self.bonds(batch.bond_table), bonds)
        for layer in self.layers:
            tokens = layer(tokens, bias)
        return tokens[:, 0].to(self.readout.weight.dtype)

    def bias(self, kinds: Tensor, bonds: Bonds) -> Tensor:
        """The bias of attention ``[B, heads, n + 1, n + 1]``; the graph's token comes first."""
        paths = ShortestPaths.of(bonds.adjacency(), self.max_distance)
        buckets = torch.arange(self.max_distance + 2, device=kinds.device)
        chosen = (paths.distance.unsqueeze(-1) == buckets).to(self.distance_bias.dtype)
        between = (chosen @ self.distance_bias).movedim(-1, 1)
        of_hops = torch.einsum("ka,hab->khb", kinds, self.hop_weights).flatten(1)
        squares = bonds.to_dense_adj(bonds.bond_vectors(at_least_float32(of_hops)))
        between = between + paths.mean_along(squares.unflatten(1, (-1, self.num_heads)))
        # The graph token's bias fills the first row and the first column.
        framed = nn.functional.pad(between, (1, 0, 1, 0))
        frame = nn.functional.pad(torch.zeros_like(between[:1, :1]), (1, 0, 1, 0), value=1.0)
        return aligned_rows(
            framed
            + frame * self.graph_bias[:, None, None]
            + nn.functional.pad(bonds.attention_bias, (1, 0))
        )
