r"""Learnable bases of many small graphs at once (paper §4.2, Eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn import kernels
from specformer.nn.activation import Activation, activation_module
from specformer.nn.attention import PackedTokens, Sets
from specformer.nn.batch_norm import BatchNorm, CountedRows, Moments
from specformer.nn.segments import (
    PairIndex,
    Segments,
    scattered_segments,
    segment_softmax,
    widened,
)
from specformer.spectrum import Tokens
from specformer.spectrum.many.packed_graphs import PackedGraphs

if TYPE_CHECKING:
    from specformer.nn.kernels.places import Places

BasesNorm = Literal["batch"] | None
Normalisation = Literal["softmax"] | None
#: Of bonds, that kernels hold sums of at once.
_MOST_KINDS = 128


@dataclass(frozen=True)
class Layout:
    """Where the rows and pairs of a batch lie, worked out once for all layers when asked for.

    Args:
        batch: the graphs.
        dtype: precision of spectra.
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

    @cached_property
    def tokens(self) -> Tokens:
        """Eigenvalues ``[B, max_nodes]`` with weights 1, and 0 for padding."""
        shape = (self.batch.num_graphs, self.batch.max_nodes)
        values = self.batch.eigenvalues.to(self.dtype)
        return Tokens(
            _scatter(values, self.node_slot, shape),
            _token_weights(self.batch.sizes, self.batch.max_nodes, self.dtype),
        )

    @property
    def spectra(self) -> Tokens | PackedTokens:
        """The same eigenvalues one graph after another ``[N]`` where kernels take them so."""
        if (places := self._places) is None:
            return self.tokens
        return PackedTokens(self.batch.eigenvalues, Sets(places.starts, self.batch.max_nodes))

    @cached_property
    def node_slot(self) -> Tensor:
        """``[N]`` a row's place among ``[B * max_nodes]``; one past the end for padding."""
        batch, size = self.batch, self.batch.max_nodes
        slot = batch.graph * size + batch.position
        # masked_fill and not torch.where, which would copy its number from the host.
        return slot.masked_fill(~batch.node_mask, batch.num_graphs * size)

    @cached_property
    def vectors(self) -> Tensor:
        """``[B, max_nodes, max_nodes]`` eigenvectors, zeros for padding."""
        size = self.batch.max_nodes
        values = self.batch.eigenvectors.to(self.dtype)
        return _scatter(values, self.pair_slot, (self.batch.num_graphs, size, size))

    @cached_property
    def pair_slot(self) -> Tensor:
        """``[P]`` a pair's place in such a square; one past the end for padding."""
        batch, size = self.batch, self.batch.max_nodes
        slot = self.node_slot[batch.target] * size + batch.position[batch.source]
        return slot.masked_fill(~self.batch.pair_mask, batch.num_graphs * size * size)

    @cached_property
    def identity(self) -> Tensor:
        """``[P]`` one where target and source are the same."""
        return (self.batch.target == self.batch.source).to(self.dtype)

    @cached_property
    def nodes(self) -> CountedRows:
        """Which rows are not padding."""
        if (places := self._places) is not None:
            return CountedRows(places.node_share, places.numbers[0])
        return CountedRows.of(self.batch.node_mask, self.dtype)

    @cached_property
    def pairs(self) -> CountedRows:
        """Which pairs are not padding."""
        if (places := self._places) is not None:
            return CountedRows(places.pair_share, places.numbers[1])
        return CountedRows.of(self.batch.pair_mask, self.dtype)

    @cached_property
    def by_target(self) -> Segments:
        """Pairs by the node that they send to."""
        index = self.batch.target.masked_fill(~self.batch.pair_mask, len(self.batch.graph))
        return Segments(index, self.batch.offsets)

    @cached_property
    def by_message(self) -> Segments:
        """Pairs by what they send, source and kind of bond."""
        index = self.batch.source * self.kinds + self.batch.bond
        return scattered_segments(index, len(self.batch.graph) * self.kinds)

    @cached_property
    def by_graph(self) -> Segments:
        """Nodes by their graph."""
        places = self._places or self.batch
        return Segments(places.graph, places.starts)

    @cached_property
    def pair_index(self) -> PairIndex:
        """Where pairs lie, for kernels that need no more."""
        places = self._places or self.batch
        return PairIndex(places.offsets, places.first, self.batch.bond)

    @cached_property
    def _places(self) -> Places | None:
        """What a kernel finds in one go of what the batch works out step by step."""
        batch = self.batch
        spectra = (batch.eigenvalues, batch.eigenvectors)
        if self.dtype != torch.float32 or not kernels.usable(*spectra):
            return None
        return kernels.batch_places(batch.sizes, len(batch.eigenvalues), len(batch.bond))


def is_fused(layout: Layout, *tensors: Tensor) -> bool:
    """Whether kernels take these tensors, and so many kinds of bonds."""
    return layout.kinds <= _MOST_KINDS and kernels.usable(*tensors)


def _scatter(values: Tensor, slot: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Flat values at their places in a padded tensor; the place past its end is thrown away."""
    flat = values.new_zeros(torch.Size(shape).numel() + 1)
    return flat.index_copy(0, slot, values)[:-1].view(shape)


def _token_weights(sizes: Tensor, max_nodes: int, dtype: torch.dtype) -> Tensor:
    """One for a graph's eigenvalues, zero for padding ``[B, max_nodes]``.

    All places of a graph without nodes count: attention over nothing is not a number.
    """
    places = torch.arange(max_nodes, device=sizes.device)
    sizes = sizes.unsqueeze(-1)
    return ((places < sizes) | (sizes == 0)).to(dtype)


def basis_entries(response: Tensor, layout: Layout) -> Tensor:
    r"""The entries of I and of all :math:`S_m = U\,\mathrm{diag}(\lambda_m)\,U^\top`, pair by pair.

    Shapes: response ``[B, max_nodes, heads]``, or ``[N, heads]`` of packed spectra, for kernels;
    output ``[P, heads + 1]``.
    """
    if response.dim() == 2:
        batch = layout.batch
        return kernels.basis_entries(
            response, batch.eigenvectors, layout.pair_index, batch.max_nodes
        )
    with torch.autocast(response.device.type, enabled=False):
        gains = response.to(layout.vectors.dtype).mT.unsqueeze(-2)  # [B, heads, 1, k]
        vectors = layout.vectors.unsqueeze(-3)
        built = (vectors * gains) @ vectors.mT  # [B, heads, i, j]
        flat = nn.functional.pad(built.movedim(1, -1).flatten(0, 2), (0, 0, 0, 1))
        entries = flat.index_select(0, layout.pair_slot)
        return torch.cat([layout.identity.unsqueeze(-1), entries], dim=-1)


class Logits(NamedTuple):
    """Values ``[P, channels]`` whose softmax over each target's sources is still to be taken."""

    values: Tensor


class GraphBases(nn.Module):
    r"""The entry-wise network over the bases, with a weight for every pair and channel.

    .. math::
        \hat S_{ij} = \mathrm{FFN}([I \,\Vert\, S_1 \,\Vert \dots \Vert\, S_M]_{ij}), \quad
        \text{perhaps}\quad \hat S_{ij} \leftarrow
        \frac{\exp \hat S_{ij}}{\sum_k \exp \hat S_{ik}}

    Args:
        num_heads: M.
        channels: d, the width of both layers.
        norm: ``"batch"``: batch normalisation after either layer; None.
        activation: of the second layer; that of the first is GELU.
        dropout: on the output of the second layer, before any softmax.
        normalise: ``"softmax"``: over the sources of each target, channel by channel; None.

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
        if norm not in ("batch", None):
            raise ConfigError(f"bases_norm={norm!r}: choose 'batch' or None.")
        if normalise not in ("softmax", None):
            raise ConfigError(f"normalise_bases={normalise!r}: choose 'softmax' or None.")
        # No run axis here, so PyTorch's own layers: they add the bias within the product.
        self.first = nn.Linear(num_heads + 1, channels)
        self.first_norm = BatchNorm(channels) if norm else None
        self.second = nn.Linear(channels, channels)
        self.second_norm = BatchNorm(channels) if norm else None
        self.activation = activation_module(activation)
        self.dropout = nn.Dropout(dropout)
        self.normalise = normalise

    def forward(
        self, entries: Tensor, layout: Layout, moments: Moments | None = None
    ) -> Tensor | Logits:
        """The weights; before their softmax where kernels take that.

        ``moments``: those of the entries, where they are known already.
        """
        hidden = self._lifted(entries, layout, moments)
        out = cast(Tensor, self.dropout(self._activated(hidden, layout)))
        if not self.normalise:
            return out
        return Logits(out) if is_fused(layout, out) else segment_softmax(out, layout.by_target)

    def moments(self, entries: Tensor, layout: Layout) -> Moments | None:
        """Those of the entries, if the first layer's normalisation needs them."""
        if self.first_norm is None or not self.first_norm.training:
            return None
        return self.first_norm.moments(entries, layout.pairs)

    def _lifted(self, entries: Tensor, layout: Layout, moments: Moments | None) -> Tensor:
        """The first layer."""
        weight: Tensor = self.first.weight
        bias: Tensor = self.first.bias
        if self.first_norm is not None:
            moments = moments or self.moments(entries, layout)
            weight, bias = self.first_norm.folded(self.first, moments)
        if is_fused(layout, entries):
            return kernels.gelu_lift(entries, weight, bias)
        return nn.functional.gelu(nn.functional.linear(entries, weight, bias))

    def _activated(self, hidden: Tensor, layout: Layout) -> Tensor:
        """The second layer."""
        if self.second_norm is not None and isinstance(self.activation, nn.GELU):
            return self.second_norm.activated(self.second, hidden, layout.pairs, "gelu")
        if is_fused(layout, hidden):
            out = kernels.linear(hidden, self.second.weight, self.second.bias)
        else:
            out = self.second(hidden)
        if self.second_norm is not None:
            out = self.second_norm(widened(out), layout.pairs)
        return cast(Tensor, self.activation(out))

    def extra_repr(self) -> str:
        return f"normalise={self.normalise!r}"
