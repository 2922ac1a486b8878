r"""Many small graphs: pairs of nodes, bases (paper §4.2, Eq. 5) and the spectral convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.kernels import usable
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import (
    Logits,
    PairIndex,
    Segments,
    Slots,
    at_least_float32,
    filtered_sum,
    gelu_lift,
    scattered_segments,
    segment_max,
    segment_softmax,
    segment_sum,
    signed_root,
)
from specformer.kernels.tracing import lazy_property
from specformer.kernels.weighted_attention import FlatSpectra, Ranges
from specformer.nn.layers.batch_norm import Activation, BatchNorm, Moments, activation_module
from specformer.nn.layers.linear import weight_and_bias
from specformer.spectrum import Tokens
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class GraphPairs:
    """Index tensors for the nodes of a batch and for all pairs of nodes of the same graph.

    Each is computed when it is first used, and then shared by all layers. ``dtype`` is the
    precision of spectra. In shapes, B is the number of graphs, N of nodes and P of pairs.
    """

    batch: PackedGraphs
    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ConfigError(
                f"the model's weights are {self.dtype}; keep them in float32, and use "
                "torch.autocast for lower precision."
            )

    @property
    def kinds(self) -> int:
        """The number of kinds of bonds."""
        return len(self.batch.bond_table)

    @lazy_property
    def tokens(self) -> Tokens:
        """Eigenvalues ``[B, max_nodes]``, with weight 1, or 0 for padding.

        All places of a graph without nodes have weight 1, because attention over nothing is NaN.
        """
        batch = self.batch
        values = self.to_dense(batch.eigenvalues.to(self.dtype).unsqueeze(1)).squeeze(-1)
        counts = batch.sizes if batch.num_eigenpairs is None else batch.num_eigenpairs
        counts = counts.unsqueeze(-1)
        places = torch.arange(batch.max_nodes, device=counts.device)
        return Tokens(values, ((places < counts) | (counts == 0)).to(self.dtype))

    @property
    def spectra(self) -> Tokens | FlatSpectra:
        """The eigenvalues ``[N]``, one graph after another, for a kernel; else :attr:`tokens`."""
        whole = self.batch.num_eigenpairs is None
        fits = whole and self.dtype == torch.float32
        if not (fits and usable("block_attention", self.batch.eigenvalues)):
            return self.tokens
        ranges = Ranges(self.batch.starts, self.batch.max_nodes)
        return FlatSpectra(self.batch.eigenvalues, ranges)

    @lazy_property
    def node_slots(self) -> Slots:
        """The place of each node among ``[B * max_nodes]``."""
        batch = self.batch
        size = batch.num_graphs * batch.max_nodes
        slot = batch.graph * batch.max_nodes + batch.position
        # Not torch.where, which would copy its number from the host.
        return Slots(slot.masked_fill(~batch.node_mask, size), size)

    @lazy_property
    def vectors(self) -> Tensor:
        """Eigenvectors ``[B, max_nodes, max_nodes]``, zeros for padding."""
        size = self.batch.max_nodes
        values = self.batch.eigenvectors.to(self.dtype).unsqueeze(1)
        return self.pair_slots.scatter(values).view(self.batch.num_graphs, size, size)

    def to_dense(self, rows: Tensor) -> Tensor:
        """Rows of nodes ``[N, channels]`` as ``[B, max_nodes, channels]``, zeros for padding."""
        shape = (self.batch.num_graphs, self.batch.max_nodes, rows.shape[1])
        return self.node_slots.scatter(rows).view(shape)

    def from_dense(self, dense: Tensor) -> Tensor:
        """The inverse of :meth:`to_dense`, ``[B, max_nodes, channels]`` to ``[N, channels]``."""
        return self.node_slots.gather(dense.flatten(0, -2))

    @lazy_property
    def pair_slots(self) -> Slots:
        """The place of each pair in :attr:`vectors`."""
        batch, side = self.batch, self.batch.max_nodes
        size = batch.num_graphs * side**2
        slot = self.node_slots.index[batch.target] * side + batch.position[batch.source]
        return Slots(slot.masked_fill(~self.batch.pair_mask, size), size)

    @lazy_property
    def identity(self) -> Tensor:
        """``[P]`` one for the pairs (i, i), zero for others."""
        return (self.batch.target == self.batch.source).to(self.dtype)

    @lazy_property
    def nodes(self) -> CountedRows:
        """Mask of the nodes that are not padding."""
        return CountedRows.of(self.batch.node_mask, self.dtype)

    @lazy_property
    def pairs(self) -> CountedRows:
        """Mask of the pairs that are not padding."""
        return CountedRows.of(self.batch.pair_mask, self.dtype)

    def statistics(self, entries: Tensor, norm: BatchNorm) -> Moments | None:
        """Mean and covariance of the entries of bases; None in evaluation, which needs neither.

        They are computed once for all layers that share their entries.
        """
        if not norm.training:
            return None
        known = self._statistics
        if known.get("entries") is not entries:
            known.update(entries=entries, moments=norm.moments(entries, self.pairs))
        return known["moments"]

    @lazy_property
    def _statistics(self) -> dict[str, Any]:
        return {}

    @lazy_property
    def by_target(self) -> Segments:
        """Pairs by their target node."""
        index = self.batch.target.masked_fill(~self.batch.pair_mask, len(self.batch.graph))
        return Segments(index, self.batch.offsets)

    @lazy_property
    def by_source(self) -> Segments:
        """Pairs by their source node. Those of padding read the last row, and no sum has them."""
        return self._scattered(self.batch.source, len(self.batch.graph))

    @lazy_property
    def by_message(self) -> Segments:
        """Pairs by their message, which depends on the source and the kind of bond."""
        index = self.batch.source * self.kinds + self.batch.bond
        return self._scattered(index, len(self.batch.graph) * self.kinds)

    def _scattered(self, index: Tensor, count: int) -> Segments:
        # The sum over all pairs of padding would be one long chain, longer than all other sums.
        kept = scattered_segments(index.masked_fill(~self.batch.pair_mask, count), count)
        return replace(kept, index=index)

    @lazy_property
    def by_graph(self) -> Segments:
        """Nodes by their graph."""
        return Segments(self.batch.graph, self.batch.starts)

    @lazy_property
    def pair_index(self) -> PairIndex:
        """Positions of the pairs, for kernels."""
        return PairIndex(self.batch.offsets, self.batch.first, self.batch.bond)


def basis_entries(response: Tensor, pairs: GraphPairs) -> Tensor:
    r"""Entries of I and of all :math:`S_m = U\,\mathrm{diag}(\lambda_m)\,U^\top` for every pair.

    Shapes: response ``[B, max_nodes, heads]``, or ``[N, heads]`` for flat spectra; output
    ``[P, heads + 1]``.
    """
    batch = pairs.batch
    if response.dim() == 2:
        if usable("basis_entries", response, batch.eigenvectors):
            from specformer.kernels.triton import entries

            index = pairs.pair_index
            return entries.basis_entries(response, batch.eigenvectors, index, batch.max_nodes)
        response = pairs.to_dense(response)
    with torch.autocast(response.device.type, enabled=False):
        gains = response.to(pairs.vectors.dtype).mT.unsqueeze(-2)  # [B, heads, 1, k]
        vectors = pairs.vectors.unsqueeze(-3)
        built = (vectors * gains) @ vectors.mT  # [B, heads, i, j]
        rows = pairs.pair_slots.gather(built.movedim(1, -1).flatten(0, -2))
        return torch.cat([pairs.identity.unsqueeze(-1), rows], dim=-1)


#: Most kinds of bonds that kernels support, because they hold one sum per kind.
_MOST_KINDS = 128


def softmax_over_sources(values: Tensor, pairs: GraphPairs) -> Tensor | Logits:
    """Softmax ``[P, channels]`` over the sources of each target; logits if a kernel takes it."""
    if usable("softmax_sum", values) and pairs.kinds <= _MOST_KINDS:
        return Logits(values)
    return segment_softmax(values, pairs.by_target)


def message_sum(
    nodes: Tensor, bonds: Tensor, linear: nn.Linear, weights: Tensor | Logits, pairs: GraphPairs
) -> Tensor:
    r"""Sum of the messages from all nodes of a graph to each node, weighted for every channel.

    .. math::
        y_i = \sum_j S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b)

    W h is computed for every node and W e for every kind of bond. There are few kinds, so messages
    are computed for every node and kind. If bonds are measured, so that each is a kind, messages
    are computed for every pair instead.

    Shapes: nodes ``[N, channels]`` (h), bonds ``[kinds, channels]`` (e), weights ``[P, channels]``
    (S), output as nodes.
    """
    given = weights.values if isinstance(weights, Logits) else weights
    weight, bias = weight_and_bias(linear)
    fused = isinstance(weights, Logits) or usable("pair_sum", nodes, given)
    if not fused or pairs.kinds > _MOST_KINDS:
        of_nodes = at_least_float32(linear(nodes))
        of_bonds = at_least_float32(nn.functional.linear(bonds, weight))
        if pairs.batch.is_measured:
            of_nodes = of_nodes.index_select(0, pairs.batch.source)
            messages = nn.functional.gelu(of_nodes + of_bonds.index_select(0, pairs.batch.bond))
            return segment_sum(messages * given, pairs.by_target)
        messages = nn.functional.gelu(of_nodes.unsqueeze(1) + of_bonds).flatten(0, 1)
        return filtered_sum(messages, given, pairs.by_message, pairs.by_target)
    # The bias is added to the kinds, because its gradient is then a sum over few rows.
    node = nn.functional.linear(nodes, weight)
    kind = nn.functional.linear(bonds, weight, bias)
    from specformer.kernels.triton.pair_sum import pair_sum

    return pair_sum(node, kind, given, pairs.pair_index, softmax=isinstance(weights, Logits))


Pooling = Literal["mean", "sum", "max"]


def pool(nodes: Tensor, by_graph: Segments, how: Pooling) -> Tensor:
    """Global mean, sum or max pooling, ``[N, channels]`` to ``[B, channels]``.

    A graph without nodes gets zeros.
    """
    if how == "max":
        return segment_max(nodes, by_graph)
    if how == "sum":
        return segment_sum(nodes, by_graph)
    sizes = by_graph.offsets.diff().clamp_min(1).unsqueeze(-1)
    return segment_sum(nodes, by_graph) / sizes


BasesNorm = Literal["batch"] | None
Normalisation = Literal["softmax"] | None


class GraphBases(nn.Module):
    r"""Feed-forward network on the entries of the bases: one weight for every pair and channel.

    .. math::
        \hat S_{ij} = \mathrm{FFN}([I \,\Vert\, S_1 \,\Vert \dots \Vert\, S_M]_{ij}), \quad
        \text{optionally}\quad \hat S_{ij} \leftarrow
        \frac{\exp \hat S_{ij}}{\sum_k \exp \hat S_{ik}}

    Args:
        num_heads: number M of bases.
        channels: width of both layers. The first is followed by GELU.
        norm: ``"batch"`` for batch normalisation after both layers, or None.
        activation: activation of the second layer.
        dropout: dropout rate on the output of the second layer.
        normalise: ``"softmax"`` for a softmax over the sources of each target, or None.

    Shapes: entries ``[P, heads + 1]``, output ``[P, channels]``.
    """

    def __init__(
        self,
        num_heads: int,
        channels: int,
        *,
        norm: BasesNorm = None,
        activation: Activation = None,
        dropout: float = 0.0,
        normalise: Normalisation = None,
    ) -> None:
        super().__init__()
        # No run axis is needed here, so these are PyTorch's layers: they fuse product and bias.
        self.first = nn.Linear(num_heads + 1, channels)
        self.first_norm = BatchNorm(channels) if norm else None
        self.second = nn.Linear(channels, channels)
        self.second_norm = BatchNorm(channels) if norm else None
        self.activation = activation_module(activation)
        self.dropout = nn.Dropout(dropout)
        self.normalise = normalise

    def forward(self, entries: Tensor, pairs: GraphPairs) -> Tensor | Logits:
        """The weights of every pair and channel; as logits if a kernel takes their softmax."""
        first = weight_and_bias(self.first)
        if self.first_norm is not None:  # folded in
            first = self.first_norm.folded(self.first, pairs.statistics(entries, self.first_norm))
        hidden = gelu_lift(entries, *first)
        if self.second_norm is not None and isinstance(self.activation, nn.GELU):
            out = self.second_norm.activated(self.second, hidden, pairs.pairs, "gelu")
        else:
            out = self.second(hidden)
            if self.second_norm is not None:
                out = self.second_norm(out, pairs.pairs)
            out = self.activation(out)
        weights: Tensor = self.dropout(out)
        return softmax_over_sources(weights, pairs) if self.normalise else weights

    def extra_repr(self) -> str:
        return f"normalise={self.normalise!r}"


class GraphConv(nn.Module):
    r"""Spectral convolution of many graphs: weighted messages, then a feed-forward network.

    .. math::
        \hat h_i = h_i + \sum_j \hat S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b), \qquad
        h_i' = \hat h_i + \mathrm{FFN}(\hat h_i)

    The sum is over all nodes j of the graph. The FFN has two layers, each a linear map, batch
    normalisation and ReLU. Dropout acts on the sum of messages and on the output of the FFN. With
    ``norm`` the sum y is replaced by :math:`\mathrm{GELU}(\mathrm{BN}(\rho(y)))`, with ρ from
    :func:`~specformer.kernels.segments.signed_root`, because over many layers plain sums grow
    without bound.

    Shapes: nodes ``[N, channels]``, bonds ``[kinds, channels]``, bases ``[P, channels]``, output as
    nodes.
    """

    def __init__(self, channels: int, *, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.message = nn.Linear(channels, channels)
        self.norm = BatchNorm(channels) if norm else None
        self.first = nn.Linear(channels, channels)
        self.first_norm = BatchNorm(channels)
        self.second = nn.Linear(channels, channels)
        self.second_norm = BatchNorm(channels)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, nodes: Tensor, bonds: Tensor, bases: Tensor | Logits, pairs: GraphPairs
    ) -> Tensor:
        summed = message_sum(nodes, bonds, self.message, bases, pairs)
        if self.norm is not None:
            summed = self.norm(signed_root(at_least_float32(summed)), pairs.nodes, "gelu")
        nodes = nodes + self.dropout(summed)
        hidden = self.first_norm.activated(self.first, nodes, pairs.nodes)
        update = self.second_norm.activated(self.second, hidden, pairs.nodes)
        return nodes + cast(Tensor, self.dropout(update))
