r"""Learnable bases of many small graphs at once (paper §4.2, Eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.activation import Activation, activation_module
from specformer.nn.batch_norm import BatchNorm, CountedRows
from specformer.nn.segments import (
    Segments,
    contiguous_segments,
    scattered_segments,
    segment_softmax,
    widened,
)
from specformer.spectrum import Tokens
from specformer.spectrum.packed import PackedGraphs

BasesNorm = Literal["batch"] | None
Normalisation = Literal["softmax"] | None


@dataclass(frozen=True)
class Layout:
    """Where the rows and pairs of a batch lie, worked out once for all layers.

    Args:
        tokens: eigenvalues ``[B, max_nodes]`` with weights 1, and 0 for padding.
        vectors: ``[B, max_nodes, max_nodes]`` eigenvectors, zeros for padding.
        pair_slot: ``[P]`` a pair's place in such a square; one past the end for padding.
        identity: ``[P]`` one where target and source are the same.
        nodes, pairs: which are not padding.
        by_target: pairs by the node that they send to.
        by_message: pairs by what they send, source and kind of bond.
        by_graph: nodes by their graph.
    """

    tokens: Tokens
    vectors: Tensor
    pair_slot: Tensor
    identity: Tensor
    nodes: CountedRows
    pairs: CountedRows
    by_target: Segments
    by_message: Segments
    by_graph: Segments

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> Layout:
        """The layout of a batch, its spectra in the given precision."""
        graphs, size, rows = batch.num_graphs, batch.max_nodes, len(batch.graph)
        kinds = len(batch.bond_table)
        nodes, pairs = batch.node_mask, batch.pair_mask
        # masked_fill and not torch.where, which would copy its number from the host.
        node_slot = (batch.graph * size + batch.position).masked_fill(~nodes, graphs * size)
        pair_slot = node_slot[batch.target] * size + batch.position[batch.source]
        pair_slot = pair_slot.masked_fill(~pairs, graphs * size * size)
        lengths = nn.functional.pad(batch.sizes, (0, 1))[batch.graph]
        return cls(
            tokens=Tokens(
                _scatter(batch.eigenvalues.to(dtype), node_slot, (graphs, size)),
                _token_weights(batch.sizes, size, dtype),
            ),
            vectors=_scatter(batch.eigenvectors.to(dtype), pair_slot, (graphs, size, size)),
            pair_slot=pair_slot,
            identity=(batch.target == batch.source).to(dtype),
            nodes=CountedRows.of(nodes, dtype),
            pairs=CountedRows.of(pairs, dtype),
            by_target=Segments(
                batch.target.masked_fill(~pairs, rows), nn.functional.pad(lengths.cumsum(0), (1, 0))
            ),
            by_message=scattered_segments(batch.source * kinds + batch.bond, rows * kinds),
            by_graph=contiguous_segments(batch.sizes, rows),
        )


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

    Shapes: response ``[B, max_nodes, heads]``, output ``[P, heads + 1]``.
    """
    with torch.autocast(response.device.type, enabled=False):
        gains = response.to(layout.vectors.dtype).mT.unsqueeze(-2)  # [B, heads, 1, k]
        vectors = layout.vectors.unsqueeze(-3)
        built = (vectors * gains) @ vectors.mT  # [B, heads, i, j]
        flat = nn.functional.pad(built.movedim(1, -1).flatten(0, 2), (0, 0, 0, 1))
        entries = flat.index_select(0, layout.pair_slot)
        return torch.cat([layout.identity.unsqueeze(-1), entries], dim=-1)


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
        self.normalise = normalise

    def forward(self, entries: Tensor, layout: Layout) -> Tensor:
        if self.first_norm is None:
            hidden = self.first(entries)
        else:
            hidden = self.first_norm.after(self.first, entries, layout.pairs)
        out = self.second(nn.functional.gelu(hidden))
        if self.second_norm is not None:
            out = self.second_norm(widened(out), layout.pairs)
        out = self.activation(out)
        return segment_softmax(out, layout.by_target) if self.normalise else cast(Tensor, out)

    def extra_repr(self) -> str:
        return f"normalise={self.normalise!r}"
