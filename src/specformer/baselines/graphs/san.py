r"""SAN: attention over bonds and over all other pairs, with a learned spectral encoding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds, aligned_rows
from specformer.baselines.graphs.graph_baseline import (
    GraphBaseline,
    PairAttention,
    two_layer_mlp,
)
from specformer.errors import ConfigError
from specformer.kernels.segments import (
    Segments,
    at_least_float32,
    filtered_sum,
    scattered_segments,
    segment_gather,
    segment_softmax,
)
from specformer.nn.argument_checks import check_split
from specformer.nn.conv.graph_conv import GraphPairs
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear
from specformer.spectrum.many.packed_graphs import PackedGraphs

#: Heads of the Transformer over the spectrum.
_SPECTRUM_HEADS = 4


class SpectrumEncoding(nn.Module):
    r"""Positional encoding: a Transformer over a node's first pairs :math:`(\lambda_k, U_{ik})`.

    .. math::
        p_i = \sum_{k < m} \mathrm{Transformer}\bigl(W [\lambda_k, U_{ik}] + b\bigr)_k

    m is ``frequencies``, or less in smaller graphs. In training the sign of each eigenvector is
    flipped at random, because it is arbitrary.

    Shapes: output ``[N, channels]``.
    """

    def __init__(self, channels: int, frequencies: int, num_layers: int, num_heads: int) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.lift = Linear(2, channels)
        self.layers = nn.ModuleList(_EncodingLayer(channels, num_heads) for _ in range(num_layers))

    def forward(self, batch: PackedGraphs) -> Tensor:
        pairs, known = self.tokens(batch)
        tokens = self.lift(pairs)
        # Padding rows have no pairs; they attend to all, because attention over nothing is NaN.
        attended = known | ~known.any(dim=-1, keepdim=True)
        bias = aligned_rows(attended.to(tokens.dtype).log())[:, None, None]
        for layer in self.layers:
            tokens = layer(tokens, bias)
        return (tokens * known.unsqueeze(-1)).sum(dim=1)

    def tokens(self, batch: PackedGraphs) -> tuple[Tensor, Tensor]:
        """Pairs ``[N, m, 2]`` and which of them exist ``[N, m]``."""
        rows, most = len(batch.graph), self.frequencies
        dtype = self.lift.weight.dtype
        vectors = batch.eigenvectors.to(dtype)
        if self.training:
            # One random sign per eigenvector; a graph has as many as it has nodes.
            coins = torch.randint(0, 2, (rows,), device=vectors.device).to(dtype) * 2.0 - 1.0
            vectors = vectors * coins.index_select(0, batch.source)
        values = batch.eigenvalues.to(dtype).index_select(0, batch.source)
        place = batch.position.index_select(0, batch.source)
        kept = (place < most) & batch.pair_mask
        slot = (batch.target * most + place).masked_fill(~kept, rows * most)
        found = torch.stack([values, vectors, torch.ones_like(values)], dim=-1)
        flat = found.new_zeros(rows * most + 1, 3).index_copy(0, slot, found)
        dense = flat[:-1].view(rows, most, 3)
        return dense[..., :2], dense[..., 2] > 0


class _EncodingLayer(nn.Module):
    """Attention and an MLP of width 2d, each with a residual and then layer norm."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.attention = PairAttention(channels, num_heads)
        self.first_norm = nn.LayerNorm(channels)
        self.mlp = two_layer_mlp(channels, 2 * channels)
        self.second_norm = nn.LayerNorm(channels)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        tokens = self.first_norm(tokens + self.attention(tokens, bias))
        return self.second_norm(tokens + self.mlp(tokens))


@dataclass(frozen=True)
class PairGroups:
    """All pairs (i, j) of different nodes in two groups per target i: bonds, and all others.

    Args:
        by_group: pairs by target and group, ``2N`` segments: bonds first, then others.
        portion: ``[P, 1]`` the weight of each pair's group.
    """

    by_group: Segments
    portion: Tensor

    @classmethod
    def of(cls, layout: GraphPairs, gamma: float) -> PairGroups:
        """The groups of a batch, with weights in the ratio of one to gamma."""
        batch, none = layout.batch, 2 * len(layout.batch.graph)
        other = batch.bond == 0
        paired = batch.pair_mask & (batch.target != batch.source)
        index = (2 * batch.target + other).masked_fill(~paired, none)
        portion = (1.0 - (1.0 - gamma) * other.to(layout.dtype)) / (1.0 + gamma)
        return cls(scattered_segments(index, none), portion.unsqueeze(1))


class SANLayer(nn.Module):
    r"""Attention with separate weights for bonds and for all other pairs.

    .. math::
        s_{ij} = \frac{1}{\sqrt{d_h}} \sum_c (Q h_i \odot K h_j \odot E e_{ij})_c, \qquad
        h_i' = \sum_{j \sim i} \frac{\mathrm{softmax}_{j \sim i}(s_{ij})}{1 + \gamma} V h_j +
        \sum_{j \not\sim i} \frac{\gamma\,\mathrm{softmax}_{j \not\sim i}(s_{ij})}{1 + \gamma} V h_j

    The second sum has its own Q, K and E. A linear map and an MLP of width 2d follow, each with a
    residual and batch normalisation.

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, "no bond" first; output as nodes.
    """

    def __init__(self, channels: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.num_heads = num_heads
        # Q and K of bonds and of others and V are one product; so are both E.
        self.project = Linear(channels, 5 * channels, bias=False)
        self.bond = Linear(channels, 2 * channels, bias=False)
        self.out = Linear(channels, channels)
        self.mlp = two_layer_mlp(channels, 2 * channels)
        self.first_norm, self.second_norm = BatchNorm(channels), BatchNorm(channels)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, nodes: Tensor, kinds: Tensor, layout: GraphPairs, groups: PairGroups
    ) -> Tensor:
        channels = nodes.shape[1]
        projected = at_least_float32(self.project(nodes))
        queries, keys, value = projected.split((2 * channels, 2 * channels, channels), dim=1)
        shares = self.shares(queries, keys, self.bond(kinds), layout, groups)
        gates = shares.unsqueeze(-1).expand(-1, -1, channels // self.num_heads).flatten(1)
        summed = filtered_sum(value, gates, layout.by_source, layout.by_target)
        nodes = self.first_norm(nodes + self.dropout(self.out(summed)), layout.nodes)
        return self.second_norm(nodes + self.dropout(self.mlp(nodes)), layout.nodes)

    def shares(
        self, queries: Tensor, keys: Tensor, bonds: Tensor, layout: GraphPairs, groups: PairGroups
    ) -> Tensor:
        """The attention weights ``[P, heads]``, from maps for bonds and for others, side by side.

        Keys are multiplied with the vectors of bonds for every node and kind, not for every pair.
        """
        channels = keys.shape[1] // 2
        key, other_key = keys.chunk(2, dim=1)
        bond, other_bond = (bonds * (channels / self.num_heads) ** -0.5).chunk(2, dim=1)
        of_kinds = [(other_key * other_bond[:1]).unsqueeze(1), key.unsqueeze(1) * bond[1:]]
        sent = segment_gather(torch.cat(of_kinds, dim=1).flatten(0, 1), layout.by_message)
        asked = segment_gather(queries.reshape(-1, channels), groups.by_group)
        scores = (sent * asked).unflatten(1, (self.num_heads, -1)).sum(dim=-1)
        return segment_softmax(scores, groups.by_group) * groups.portion


class SAN(GraphBaseline):
    """Spectral attention network on the full graph.

    From `"Rethinking Graph Transformers with Spectral
    Attention" <https://arxiv.org/abs/2106.03893>`_. Part of each node's vector is its
    :class:`SpectrumEncoding`, which depends on the signs and bases of eigenvectors. Batches must
    have spectra of the Laplacian.

    Args:
        num_heads: number of attention heads.
        gamma: weight of pairs without a bond, relative to bonds.
        frequencies: number m of eigenpairs in the encoding.
        spectrum_channels: number of channels for the encoding, a multiple of 4.
        spectrum_layers: depth of the encoding's Transformer.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    encoding_setting = "spectrum_channels"

    def build(
        self,
        *,
        num_heads: int = 8,
        gamma: float = 0.1,
        frequencies: int = 10,
        spectrum_channels: int = 16,
        spectrum_layers: int = 2,
    ) -> None:
        if gamma < 0:
            raise ConfigError(f"gamma={gamma} must not be negative.")
        if spectrum_channels % _SPECTRUM_HEADS:
            raise ConfigError(
                f"spectrum_channels={spectrum_channels} must be a multiple of {_SPECTRUM_HEADS}."
            )
        self.gamma = gamma
        self.bonds = self.pair_embedding()
        self.spectrum = SpectrumEncoding(
            spectrum_channels, frequencies, spectrum_layers, _SPECTRUM_HEADS
        )
        self.layers = nn.ModuleList(
            SANLayer(self.channels, num_heads, self.dropout.p) for _ in range(self.depth)
        )

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        nodes = torch.cat([self.atoms(batch), self.spectrum(batch)], dim=-1)
        kinds = self.bonds(batch.bond_table)
        groups = PairGroups.of(bonds.layout, self.gamma)
        for layer in self.layers:
            nodes = layer(nodes, kinds, bonds.layout, groups)
        return nodes
