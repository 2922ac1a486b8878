r"""The bonds of a batch one after another, for models that hold a state of each.

A molecule has about as many bonds as atoms, and far more pairs. How many bonds a batch has room for
is part of its shape, where the graphs were packed with their rings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specformer.baselines.graphs.parts.bonds import spread
from specformer.kernels.masked_norm import CountedRows
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
