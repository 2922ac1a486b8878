r"""Pairs of nodes of many small graphs, their bases (paper §4.2, Eq. 5) and one convolution."""

from __future__ import annotations

from dataclasses import dataclass
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
    at_least_float32,
    filtered_sum,
    gelu_lift,
    scattered_segments,
    segment_softmax,
    segment_sum,
    signed_root,
)
from specformer.kernels.tracing import lazy_property
from specformer.kernels.weighted_attention import FlatSpectra, Ranges
from specformer.nn.argument_checks import check_choices
from specformer.nn.layers.batch_norm import Activation, BatchNorm, Moments, activation_module
from specformer.spectrum import Tokens
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class GraphPairs:
    """The nodes of a batch of graphs and all pairs of nodes of one graph.

    Everything follows from the batch, and is worked out once for all layers when it is first asked
    for. ``dtype`` is the precision of spectra.
    """

    batch: PackedGraphs
    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ConfigError(
                f"the model's weights are {self.dtype}; keep them in float32, and for a shorter "
                "precision call it within torch.autocast."
            )

    @property
    def kinds(self) -> int:
        """Kinds of bonds."""
        return len(self.batch.bond_table)

    @lazy_property
    def tokens(self) -> Tokens:
        """Eigenvalues ``[B, max_nodes]`` with weights 1, and 0 for padding."""
        shape = (self.batch.num_graphs, self.batch.max_nodes)
        values = self.batch.eigenvalues.to(self.dtype)
        return Tokens(
            _scatter(values, self.node_slot, shape),
            _token_weights(self._counts, self.batch.max_nodes, self.dtype),
        )

    @property
    def _counts(self) -> Tensor:
        """``[B]`` eigenvalues of each graph."""
        truncated = self.batch.num_eigenpairs
        return self.batch.sizes if truncated is None else truncated

    @property
    def spectra(self) -> Tokens | FlatSpectra:
        """The same eigenvalues one graph after another ``[N]`` where a kernel takes them so."""
        whole = self.batch.num_eigenpairs is None
        fits = whole and self.dtype == torch.float32
        if not (fits and usable("block_attention", self.batch.eigenvalues)):
            return self.tokens
        ranges = Ranges(self.batch.starts, self.batch.max_nodes)
        return FlatSpectra(self.batch.eigenvalues, ranges)

    @lazy_property
    def node_slot(self) -> Tensor:
        """``[N]`` a row's place among ``[B * max_nodes]``; one past the end for padding."""
        batch, size = self.batch, self.batch.max_nodes
        slot = batch.graph * size + batch.position
        # masked_fill and not torch.where, which would copy its number from the host.
        return slot.masked_fill(~batch.node_mask, batch.num_graphs * size)

    @lazy_property
    def vectors(self) -> Tensor:
        """``[B, max_nodes, max_nodes]`` eigenvectors, zeros for padding."""
        size = self.batch.max_nodes
        values = self.batch.eigenvectors.to(self.dtype)
        return _scatter(values, self.pair_slot, (self.batch.num_graphs, size, size))

    @lazy_property
    def pair_slot(self) -> Tensor:
        """``[P]`` a pair's place in such a square; one past the end for padding."""
        batch, size = self.batch, self.batch.max_nodes
        slot = self.node_slot[batch.target] * size + batch.position[batch.source]
        return slot.masked_fill(~self.batch.pair_mask, batch.num_graphs * size * size)

    @lazy_property
    def identity(self) -> Tensor:
        """``[P]`` one where target and source are the same."""
        return (self.batch.target == self.batch.source).to(self.dtype)

    @lazy_property
    def nodes(self) -> CountedRows:
        """Which rows are not padding."""
        return CountedRows.of(self.batch.node_mask, self.dtype)

    @lazy_property
    def pairs(self) -> CountedRows:
        """Which pairs are not padding."""
        return CountedRows.of(self.batch.pair_mask, self.dtype)

    def statistics(self, entries: Tensor, norm: BatchNorm) -> Moments | None:
        """Mean and covariance of the entries of bases, if that normalisation needs them.

        They are computed for the first layer that asks: layers may share their entries.
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
        """Pairs by the node that they send to."""
        index = self.batch.target.masked_fill(~self.batch.pair_mask, len(self.batch.graph))
        return Segments(index, self.batch.offsets)

    @lazy_property
    def by_source(self) -> Segments:
        """Pairs by the node that they come from."""
        return scattered_segments(self.batch.source, len(self.batch.graph))

    @lazy_property
    def by_message(self) -> Segments:
        """Pairs by what they send, source and kind of bond."""
        index = self.batch.source * self.kinds + self.batch.bond
        return scattered_segments(index, len(self.batch.graph) * self.kinds)

    @lazy_property
    def by_graph(self) -> Segments:
        """Nodes by their graph."""
        return Segments(self.batch.graph, self.batch.starts)

    @lazy_property
    def pair_index(self) -> PairIndex:
        """Where pairs lie, for kernels that need no more."""
        return PairIndex(self.batch.offsets, self.batch.first, self.batch.bond)


def _scatter(values: Tensor, slot: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Flat values at their places in a padded tensor; the place past its end is thrown away."""
    flat = values.new_zeros(torch.Size(shape).numel() + 1, *values.shape[1:])
    return flat.index_copy(0, slot, values)[:-1].view(*shape, *values.shape[1:])


def _token_weights(counts: Tensor, max_nodes: int, dtype: torch.dtype) -> Tensor:
    """One for a graph's eigenvalues, zero for padding ``[B, max_nodes]``.

    All places of a graph without nodes count: attention over nothing is not a number.
    """
    places = torch.arange(max_nodes, device=counts.device)
    counts = counts.unsqueeze(-1)
    return ((places < counts) | (counts == 0)).to(dtype)


def basis_entries(response: Tensor, pairs: GraphPairs) -> Tensor:
    r"""The entries of I and of all :math:`S_m = U\,\mathrm{diag}(\lambda_m)\,U^\top`, pair by pair.

    Shapes: response ``[B, max_nodes, heads]``, or ``[N, heads]`` of flat spectra; output
    ``[P, heads + 1]``.
    """
    batch = pairs.batch
    if response.dim() == 2:
        if usable("basis_entries", response, batch.eigenvectors):
            from specformer.kernels.triton import entries

            index = pairs.pair_index
            return entries.basis_entries(response, batch.eigenvectors, index, batch.max_nodes)
        response = _scatter(response, pairs.node_slot, (batch.num_graphs, batch.max_nodes))
    with torch.autocast(response.device.type, enabled=False):
        gains = response.to(pairs.vectors.dtype).mT.unsqueeze(-2)  # [B, heads, 1, k]
        vectors = pairs.vectors.unsqueeze(-3)
        built = (vectors * gains) @ vectors.mT  # [B, heads, i, j]
        flat = nn.functional.pad(built.movedim(1, -1).flatten(0, 2), (0, 0, 0, 1))
        rows = flat.index_select(0, pairs.pair_slot)
        return torch.cat([pairs.identity.unsqueeze(-1), rows], dim=-1)


#: Most kinds of bonds that the kernels support: they hold a sum per kind.
_MOST_KINDS = 128


def softmax_over_sources(values: Tensor, pairs: GraphPairs) -> Tensor | Logits:
    """Shares ``[P, channels]`` that add up to one over the sources of each target."""
    if usable("softmax_sum", values) and pairs.kinds <= _MOST_KINDS:
        return Logits(values)
    return segment_softmax(values, pairs.by_target)


def message_sum(
    nodes: Tensor, bonds: Tensor, linear: nn.Linear, weights: Tensor | Logits, pairs: GraphPairs
) -> Tensor:
    r"""What all nodes of a graph send to each, weighted channel by channel.

    .. math::
        y_i = \sum_j S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b)

    Bonds are mostly of few kinds, so W h is computed for every node, W e for every kind, and a
    message for every node and kind; one for every pair only where they are measured.

    Shapes: nodes ``[N, channels]`` (h), bonds ``[kinds, channels]`` (e), weights ``[P, channels]``
    (S), output as nodes.
    """
    given = weights.values if isinstance(weights, Logits) else weights
    fused = isinstance(weights, Logits) or usable("pair_sum", nodes, given)
    if not fused or pairs.kinds > _MOST_KINDS:
        if pairs.batch.is_measured:
            return segment_sum(_pair_messages(nodes, bonds, linear, pairs) * given, pairs.by_target)
        messages = _every_message(nodes, bonds, linear)
        return filtered_sum(messages, given, pairs.by_message, pairs.by_target)
    # The bias goes to the kinds: its gradient is then a sum over few rows.
    node = nn.functional.linear(nodes, linear.weight)
    kind = nn.functional.linear(bonds, linear.weight, linear.bias)
    from specformer.kernels.triton.pair_sum import pair_sum

    return pair_sum(node, kind, given, pairs.pair_index, softmax=isinstance(weights, Logits))


def _every_message(nodes: Tensor, bonds: Tensor, linear: nn.Linear) -> Tensor:
    """What every node would send over every kind of bond, ``[N * kinds, channels]``."""
    of_nodes = at_least_float32(linear(nodes)).unsqueeze(1)
    of_bonds = at_least_float32(nn.functional.linear(bonds, linear.weight))
    return nn.functional.gelu(of_nodes + of_bonds).flatten(0, 1)


def _pair_messages(nodes: Tensor, bonds: Tensor, linear: nn.Linear, pairs: GraphPairs) -> Tensor:
    """What every pair's source sends, ``[P, channels]``."""
    of_nodes = at_least_float32(linear(nodes)).index_select(0, pairs.batch.source)
    of_bonds = at_least_float32(nn.functional.linear(bonds, linear.weight))
    return nn.functional.gelu(of_nodes + of_bonds.index_select(0, pairs.batch.bond))


Pooling = Literal["mean", "sum", "max"]
POOLINGS = ("mean", "sum", "max")


def pool(nodes: Tensor, by_graph: Segments, how: Pooling) -> Tensor:
    """The mean, sum or largest of each graph's rows, ``[N, channels]`` to ``[B, channels]``.

    A graph without nodes gets zeros.
    """
    if how == "max":
        return by_graph.max(nodes)
    if how == "sum":
        return segment_sum(nodes, by_graph)
    if how == "mean":
        sizes = by_graph.offsets.diff().clamp_min(1).unsqueeze(-1)
        return segment_sum(nodes, by_graph) / sizes
    raise ConfigError(f"pooling={how!r}: choose {' or '.join(POOLINGS)}.")


BasesNorm = Literal["batch"] | None
Normalisation = Literal["softmax"] | None


class GraphBases(nn.Module):
    r"""The entry-wise network over the bases, with a weight for every pair and channel.

    .. math::
        \hat S_{ij} = \mathrm{FFN}([I \,\Vert\, S_1 \,\Vert \dots \Vert\, S_M]_{ij}), \quad
        \text{perhaps}\quad \hat S_{ij} \leftarrow
        \frac{\exp \hat S_{ij}}{\sum_k \exp \hat S_{ik}}

    Both layers are of width d and may be batch-normalised. The activation of the first is GELU.
    Dropout is on the output of the second, before any softmax (``normalise``) over the sources of
    each target, channel by channel.

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
        given = {"bases_norm": norm, "normalise_bases": normalise}
        check_choices(given, bases_norm=("batch", None), normalise_bases=("softmax", None))
        # No run axis here, so PyTorch's own layers: they add the bias within the product.
        self.first = nn.Linear(num_heads + 1, channels)
        self.first_norm = BatchNorm(channels) if norm else None
        self.second = nn.Linear(channels, channels)
        self.second_norm = BatchNorm(channels) if norm else None
        self.activation = activation_module(activation)
        self.dropout = nn.Dropout(dropout)
        self.normalise = normalise

    def forward(self, entries: Tensor, pairs: GraphPairs) -> Tensor | Logits:
        """The weights of every pair and channel; perhaps before their softmax."""
        hidden = gelu_lift(entries, *self._first_map(entries, pairs))
        out: Tensor = self.dropout(self._second(hidden, pairs))
        return softmax_over_sources(out, pairs) if self.normalise else out

    def _first_map(self, entries: Tensor, pairs: GraphPairs) -> tuple[Tensor, Tensor]:
        """Weight and bias of the first layer, with its normalisation folded in."""
        if self.first_norm is None:
            return self.first.weight, self.first.bias
        statistics = pairs.statistics(entries, self.first_norm)
        return self.first_norm.folded(self.first, statistics)

    def _second(self, hidden: Tensor, pairs: GraphPairs) -> Tensor:
        if self.second_norm is not None and isinstance(self.activation, nn.GELU):
            return self.second_norm.activated(self.second, hidden, pairs.pairs, "gelu")
        out = self.second(hidden)
        if self.second_norm is not None:
            out = self.second_norm(at_least_float32(out), pairs.pairs)
        return self.activation(out)

    def extra_repr(self) -> str:
        return f"normalise={self.normalise!r}"


class GraphConv(nn.Module):
    r"""Messages weighted by the bases and summed, then a feed-forward network, each added.

    .. math::
        \hat h_i = h_i + \sum_j \hat S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b), \qquad
        h_i' = \hat h_i + \mathrm{FFN}(\hat h_i)

    with j over all nodes of the graph, and two layers of linear map, batch normalisation and ReLU
    for FFN. Dropout is on the sum of messages, and on the output of FFN. With ``norm`` the sum y is
    taken as :math:`\mathrm{GELU}(\mathrm{BN}(\rho(y)))`, with ρ of
    :func:`~specformer.kernels.segments.signed_root`: many layers of plain sums grow without bound.

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
            summed = self.norm.gelu(signed_root(at_least_float32(summed)), pairs.nodes)
        nodes = nodes + self.dropout(summed)
        hidden = self.first_norm.activated(self.first, nodes, pairs.nodes)
        update = self.second_norm.activated(self.second, hidden, pairs.nodes)
        return nodes + cast(Tensor, self.dropout(update))
