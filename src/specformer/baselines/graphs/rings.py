r"""The bonds and the rings of a batch one after another, for models that hold a state of each.

A molecule has about as many bonds as atoms, and far more pairs. How many bonds a batch has room for
is part of its shape, where the graphs were packed with their rings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import spread
from specformer.errors import ConfigError
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import Segments, scattered_segments, segment_sum
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class BondList:
    """E bonds, each once, with padding at the end. A loop is not a bond.

    Args:
        counted: which rows are bonds.
        by_kind: bonds by their kind.
        by_end: all bonds twice, by the row of one end and by that of the other.
        by_graph: bonds by their graph, in its order.
        row: ``[P]`` the bond of a pair (i, j) with i > j; E for any other pair, and for no bond.
    """

    counted: CountedRows
    by_kind: Segments
    by_end: Segments
    by_graph: Segments
    row: Tensor

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> BondList:
        """The bonds of a batch that says how many it has room for."""
        room, num_nodes, kinds = batch.num_bonds, len(batch.nodes), len(batch.bond_table)
        is_first = (batch.bond > 0) & batch.pair_mask & (batch.source < batch.target)
        row = (is_first.cumsum(0) - 1).masked_fill(~is_first, room)
        pairs = torch.arange(len(row), device=row.device)
        # The place past the end takes all other pairs and is thrown away.
        pair = row.new_zeros(room + 1).index_copy(0, row, pairs)[:-1]
        used = torch.arange(room, device=row.device) < is_first.sum()

        def of_bonds(values: Tensor, none: int) -> Tensor:
            return values.index_select(0, pair).masked_fill(~used, none)

        ends = [of_bonds(end, num_nodes) for end in (batch.target, batch.source)]
        graph = of_bonds(batch.graph.index_select(0, batch.target), batch.num_graphs)
        numbers = torch.arange(batch.num_graphs + 1, device=row.device)
        return cls(
            counted=CountedRows.of(used, dtype),
            by_kind=scattered_segments(of_bonds(batch.bond, kinds), kinds),
            by_end=scattered_segments(torch.cat(ends), num_nodes),
            by_graph=Segments(graph, torch.searchsorted(graph, numbers)),
            row=row,
        )

    def of_kinds(self, kinds: Tensor) -> Tensor:
        """Every bond's own of values by kind, ``[kinds, channels]`` to ``[E, channels]``."""
        return spread(kinds, self.by_kind)

    def at_ends(self, nodes: Tensor) -> Tensor:
        """The two ends of every bond, ``[N, channels]`` to ``[2, E, channels]``."""
        return spread(nodes, self.by_end).view(2, -1, nodes.shape[1])

    def to_ends(self, ends: Tensor) -> Tensor:
        """The sum over a node's bonds, ``[2, E, channels]`` to ``[N, channels]``."""
        return segment_sum(ends.flatten(0, 1), self.by_end)


@dataclass(frozen=True)
class Rings:
    """R rings of L places each: at each an atom, and the bond from it to the next.

    Args:
        bonds: those of the batch.
        used: ``[R, L, 1]`` one for a place of a ring, zero beyond its length and for padding.
        length: ``[R]`` atoms, and bonds, of each ring; 0 for padding.
        counted: which rows are rings, for normalisation.
        by_graph: rings by their graph, in its order.
        by_atom: the R·L places by the row of their atom.
        by_bond: the places by the row of their bond.
    """

    bonds: BondList
    used: Tensor
    length: Tensor
    counted: CountedRows
    by_graph: Segments
    by_atom: Segments
    by_bond: Segments

    @classmethod
    def of(cls, batch: PackedGraphs, max_ring: int, dtype: torch.dtype) -> Rings:
        """The rings of a batch that was packed with those of up to ``max_ring`` atoms."""
        rings, counts = batch.rings, batch.ring_counts
        if rings is None or counts is None or rings.shape[1] != max_ring:
            held = "no rings" if rings is None else f"rings of up to {rings.shape[1]} atoms"
            raise ConfigError(
                f"the batch has {held}, the model needs those of up to {max_ring}: pack graphs "
                f"with max_ring={max_ring}."
            )
        bonds = BondList.of(batch, dtype)
        used = rings >= 0
        length = used.sum(dim=1)
        starts = nn.functional.pad(counts.cumsum(0), (1, 0))
        number = torch.arange(len(rings), device=rings.device)
        graph = torch.searchsorted(starts[1:], number, right=True)
        first = batch.starts.index_select(0, graph).unsqueeze(1)
        own = rings.clamp_min(0)
        last = torch.arange(max_ring, device=rings.device) == length.unsqueeze(1) - 1
        following = torch.where(last, own[:, :1], own.roll(-1, dims=1))
        low, high = torch.minimum(own, following), torch.maximum(own, following)
        # Padding may point past the last pair.
        pair = (batch.offsets[first + high] + low).clamp_max(len(bonds.row) - 1)
        bond = bonds.row[pair].masked_fill(~used, batch.num_bonds)
        atom = (first + own).masked_fill(~used, len(batch.nodes))
        return cls(
            bonds=bonds,
            used=used.to(dtype).unsqueeze(-1),
            length=length,
            counted=CountedRows.of(length > 0, dtype),
            by_graph=Segments(graph, starts),
            by_atom=scattered_segments(atom.flatten(), len(batch.nodes)),
            by_bond=scattered_segments(bond.flatten(), batch.num_bonds),
        )

    def of_atoms(self, nodes: Tensor) -> Tensor:
        """The sum over a ring's atoms, ``[N, channels]`` to ``[R, channels]``."""
        return self._at_places(nodes, self.by_atom).sum(dim=1)

    def at_bonds(self, bonds: Tensor) -> Tensor:
        """The bond of each place, ``[E, channels]`` to ``[R, L, channels]``; zeros if unused."""
        return self._at_places(bonds, self.by_bond)

    def to_bonds(self, places: Tensor) -> Tensor:
        """The sum over a bond's places, ``[R, L, channels]`` to ``[E, channels]``."""
        return segment_sum(places.flatten(0, 1), self.by_bond)

    def counts(self) -> Tensor:
        """How many rings of each length from 3 on a bond is in, ``[E, L - 2]``."""
        lengths = torch.arange(3, self.used.shape[1] + 1, device=self.length.device)
        of_length = (self.length.unsqueeze(1) == lengths).to(self.used.dtype)
        return self.to_bonds(of_length.unsqueeze(1).expand(-1, self.used.shape[1], -1))

    def _at_places(self, rows: Tensor, segments: Segments) -> Tensor:
        return spread(rows, segments).view(*self.used.shape[:2], -1)
