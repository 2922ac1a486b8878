r"""The rings of a batch: which atoms they have, and which pairs of nodes share them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.kernels.segments import Segments
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class RingPlaces:
    """R rings of L places each, at each an atom; some rows may be padding.

    Args:
        atoms: ``[R, L]`` numbers within the graph, in the order of the ring's bonds; 0 where there
            is no atom.
        used: ``[R, L]`` true for a place of a ring, false beyond its length and for padding.
        length: ``[R]`` atoms of each ring; 0 for padding.
        graph: ``[R]`` the graph of each ring; B for padding.
        by_graph: rings by their graph, in its order.
    """

    atoms: Tensor
    used: Tensor
    length: Tensor
    graph: Tensor
    by_graph: Segments

    @classmethod
    def of(cls, batch: PackedGraphs, max_ring: int) -> RingPlaces:
        """The rings of a batch that was packed with those of up to ``max_ring`` atoms."""
        rings, counts = batch.rings, batch.ring_counts
        if rings is None or counts is None or rings.shape[1] != max_ring:
            held = "no rings" if rings is None else f"rings of up to {rings.shape[1]} atoms"
            raise ConfigError(
                f"the batch has {held}, the model needs those of up to {max_ring}: pack graphs "
                f"with max_ring={max_ring}."
            )
        used = rings >= 0
        starts = nn.functional.pad(counts.cumsum(0), (1, 0))
        number = torch.arange(len(rings), device=rings.device)
        graph = torch.searchsorted(starts, number, right=True) - 1
        return cls(rings.clamp_min(0), used, used.sum(dim=1), graph, Segments(graph, starts))


def shared_rings(batch: PackedGraphs, max_ring: int, dtype: torch.dtype) -> Tensor:
    r"""How many rings of at least k atoms two nodes share, for each k from 3 to ``max_ring``.

    .. math::
        r^{(k)}_{ij} = |\{\text{rings } R : i \in R,\; j \in R,\; |R| \ge k\}|

    Where i = j, those that the node is in. Large rings are rare: counted so, what is learned of
    smaller ones holds for them too.

    Shapes: output ``[P, max_ring - 2]``.
    """
    places, num_pairs = RingPlaces.of(batch, max_ring), len(batch.bond)
    row = batch.starts.index_select(0, places.graph).unsqueeze(1) + places.atoms
    begin = batch.offsets.index_select(0, row.flatten()).view_as(row)
    pair = begin.unsqueeze(2) + places.atoms.unsqueeze(1)
    both = places.used.unsqueeze(2) & places.used.unsqueeze(1)
    # Nothing is added anywhere for the other places, and all over: a sum in one place takes long.
    spare = torch.arange(pair.numel(), device=pair.device) % num_pairs
    pair = torch.where(both.flatten(), pair.flatten(), spare)
    lengths = torch.arange(3, max_ring + 1, device=pair.device)
    reached = places.length.unsqueeze(1) >= lengths
    ones = (both.unsqueeze(-1) & reached[:, None, None]).flatten(0, 2).to(dtype)
    # Sums of ones are exact, in whatever order they are taken.
    return ones.new_zeros(num_pairs, len(lengths)).index_add_(0, pair, ones)
