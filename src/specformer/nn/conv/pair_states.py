r"""States of pairs of nodes, which start from bases and rings and change in every layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.kernels import usable
from specformer.kernels.segments import (
    Logits,
    Segments,
    at_least_float32,
    contiguous_segments,
    segment_gather,
    signed_root,
)
from specformer.nn.conv.embedding import summed_rows
from specformer.nn.conv.graph_conv import GraphPairs, Normalisation, softmax_over_sources
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.spectrum.many.packed_graphs import PackedGraphs


class PairUpdate(nn.Module):
    r"""Update the state of every pair from the state itself and from the pair's two nodes.

    .. math::
        p_{ij}' = p_{ij} + W_o\, \mathrm{GELU}\bigl(\mathrm{BN}\bigl(\rho((W_q h_i + W_k h_j)
        \odot W_g p_{ij}) + W_b p_{ij}\bigr)\bigr), \qquad \hat S_{ij} = W_s p_{ij}'

    with :math:`\rho` from :func:`~specformer.kernels.segments.signed_root`.

    Dropout acts on the weights :math:`\hat S`. With ``normalise="softmax"`` a softmax over the
    sources of each target follows, as in :class:`~specformer.nn.conv.graph_conv.GraphBases`.

    Shapes: nodes ``[N, channels]`` (h), states ``[P, channels]`` (p), weights as states.
    """

    def __init__(
        self, channels: int, *, dropout: float = 0.0, normalise: Normalisation = None
    ) -> None:
        super().__init__()
        self.ends = nn.Linear(channels, 2 * channels)
        self.own = nn.Linear(channels, 2 * channels, bias=False)  # the norm would cancel a bias
        self.norm = BatchNorm(channels)
        self.out = nn.Linear(channels, channels)
        self.weigh = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)
        self.normalise = normalise

    def forward(self, states: Tensor, nodes: Tensor, pairs: GraphPairs) -> Tensor:
        mixed = gate_pairs(self.ends(nodes), self.own(states), pairs)
        return states + at_least_float32(self.out(self.norm(mixed, pairs.pairs, "gelu")))

    def weights(self, states: Tensor, pairs: GraphPairs) -> Tensor | Logits:
        """The weights of every pair and channel; as logits if a kernel takes their softmax."""
        out: Tensor = self.dropout(self.weigh(states))
        return softmax_over_sources(out, pairs) if self.normalise else out

    def extra_repr(self) -> str:
        return f"normalise={self.normalise!r}"


def gate_pairs(ends: Tensor, own: Tensor, pairs: GraphPairs) -> Tensor:
    r"""Combine the states of pairs with their nodes, :math:`\rho((q_i + k_j) g_{ij}) + b_{ij}`.

    Shapes: ends ``[N, 2 * channels]`` (q, k), own ``[P, 2 * channels]`` (g, b), output
    ``[P, channels]``.
    """
    if usable("gated_pairs", ends, own):
        from specformer.kernels.triton.gating import gated_pairs

        return gated_pairs(ends, own, pairs.pair_index)
    target, source = at_least_float32(ends).chunk(2, dim=1)
    gate, shift = at_least_float32(own).chunk(2, dim=1)
    both = segment_gather(target, pairs.by_target) + segment_gather(source, pairs.by_source)
    return signed_root(both * gate) + shift


def bond_vectors(kinds: Tensor, pairs: GraphPairs) -> Tensor:
    """The vector of every pair's kind of bond, ``[kinds, channels]`` to ``[P, channels]``.

    Gradients are always summed in the same order. With measured bonds, every kind but "no bond"
    belongs to at most two pairs.
    """
    bond = pairs.batch.bond
    if not pairs.batch.is_measured:
        return summed_rows(bond.unsqueeze(1), kinds)
    bonded = (bond > 0).to(kinds.dtype).unsqueeze(1)
    return kinds[:1] + (kinds - kinds[:1]).index_select(0, bond) * bonded


def diagonal_rows(features: Tensor, pairs: GraphPairs) -> Tensor:
    """The rows of the pairs (i, i), ``[P, columns]`` to ``[N, columns]``; arbitrary for padding."""
    batch = pairs.batch
    place = (batch.offsets[:-1] + batch.position).clamp_max(len(features) - 1)
    return features.index_select(0, place)


@dataclass(frozen=True)
class RingPlaces:
    """The atoms of R rings, each row padded to L places; the last rows may be padding.

    Args:
        atoms: ``[R, L]`` atoms, numbered within their graph, in order around the ring; 0 for an
            unused place.
        used: ``[R, L]`` false for places beyond the ring's length and for padding.
        length: ``[R]`` atoms of each ring; 0 for padding.
        by_graph: rings by graph; its ``index`` ``[R]`` is the graph of each ring, B for padding.
    """

    atoms: Tensor
    used: Tensor
    length: Tensor
    by_graph: Segments

    @classmethod
    def of(cls, batch: PackedGraphs, max_ring: int) -> RingPlaces:
        """The rings of a batch, which must have been packed with the same ``max_ring``."""
        rings, counts = batch.rings, batch.ring_counts
        if rings is None or counts is None or rings.shape[1] != max_ring:
            held = "no rings" if rings is None else f"rings of up to {rings.shape[1]} atoms"
            raise ConfigError(
                f"the batch has {held}, but the model needs rings of up to {max_ring}: pack the "
                f"graphs with max_ring={max_ring}."
            )
        used = rings >= 0
        by_graph = contiguous_segments(counts, len(rings))
        return cls(rings.clamp_min(0), used, used.sum(dim=1), by_graph)


def shared_rings(batch: PackedGraphs, max_ring: int, dtype: torch.dtype) -> Tensor:
    r"""How many rings of at least k atoms two nodes share, for each k from 3 to ``max_ring``.

    .. math::
        r^{(k)}_{ij} = |\{\text{rings } R : i \in R,\; j \in R,\; |R| \ge k\}|

    For i = j this counts the rings of the node. The counts of large rings include those of smaller
    k, so that weights learned on common rings also apply to rare large ones.

    Shapes: output ``[P, max_ring - 2]``.
    """
    places, num_pairs = RingPlaces.of(batch, max_ring), len(batch.bond)
    row = batch.starts.index_select(0, places.by_graph.index).unsqueeze(1) + places.atoms
    begin = batch.offsets.index_select(0, row.flatten()).view_as(row)
    pair = begin.unsqueeze(2) + places.atoms.unsqueeze(1)
    both = places.used.unsqueeze(2) & places.used.unsqueeze(1)
    # Unused places add zeros, to pairs all over: many additions to one pair would be slow.
    spare = torch.arange(pair.numel(), device=pair.device) % num_pairs
    pair = torch.where(both.flatten(), pair.flatten(), spare)
    lengths = torch.arange(3, max_ring + 1, device=pair.device)
    reached = places.length.unsqueeze(1) >= lengths
    ones = (both.unsqueeze(-1) & reached[:, None, None]).flatten(0, 2).to(dtype)
    # Sums of ones are exact in any order.
    return ones.new_zeros(num_pairs, len(lengths)).index_add_(0, pair, ones)
