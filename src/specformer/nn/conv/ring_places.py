r"""The rings of a batch: their atoms, and how many of them two nodes share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specformer.errors import ConfigError
from specformer.kernels.segments import Segments, contiguous_segments
from specformer.spectrum.many.packed_graphs import PackedGraphs


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
