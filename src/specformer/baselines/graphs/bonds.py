r"""The bonds and the rings of a batch: who is joined to whom, as weights over all pairs of nodes.

A list of bonds has a length that only the data know. All pairs with a weight of one or zero have a
fixed shape instead, so that a step can be captured; a molecule has few enough pairs for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import (
    Segments,
    filtered_sum,
    scattered_segments,
    segment_sum,
    spread,
    widened,
)
from specformer.nn.conv.graph_conv import GraphPairs
from specformer.nn.conv.ring_places import RingPlaces
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class Bonds:
    """What message passing needs of a batch, worked out once for all layers.

    Args:
        layout: where rows and pairs lie.
        weight: ``[P, 1]`` one for a bond, zero for any other pair.
        degree: ``[N, 1]`` bonds of each node.
        counted: which pairs are bonds, for normalisation.
    """

    layout: GraphPairs
    weight: Tensor
    degree: Tensor
    counted: CountedRows

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> Bonds:
        """The bonds of a batch, weights in the given precision."""
        layout = GraphPairs(batch, dtype)
        joined = (batch.bond > 0) & batch.pair_mask
        weight = joined.to(dtype).unsqueeze(-1)
        return cls(
            layout=layout,
            weight=weight,
            degree=layout.by_target.sum(weight),
            counted=CountedRows.of(joined, dtype),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """B and max_nodes."""
        return self.layout.batch.num_graphs, self.layout.batch.max_nodes

    @property
    def lonely(self) -> Tensor:
        """``[N, 1]`` true for a node without bonds."""
        return self.degree == 0

    @property
    def token_bias(self) -> Tensor:
        """``[B, 1, 1, max_nodes]`` what keeps attention from padding: 0 or minus infinity."""
        return self.layout.tokens.weights.log()[:, None, None]

    def sum(self, messages: Tensor, gates: Tensor | None = None) -> Tensor:
        r"""What a node's neighbours send it, :math:`\sum_{j \sim i} g_{ij} \odot m_j`.

        Shapes: messages ``[N, channels]``, gates ``[P, channels]`` or ``[P, 1]``, zero but for
        bonds (None: one for each of them); output as messages.
        """
        gates = self.weight if gates is None else widened(gates)
        return filtered_sum(widened(messages), gates, self.layout.by_source, self.layout.by_target)

    def sum_by_kind(self, messages: Tensor, gates: Tensor | None = None) -> Tensor:
        r"""The same of messages that differ by kind of bond, ``[N, kinds, channels]``."""
        layout, flat = self.layout, widened(messages).flatten(0, 1)
        gates = self.weight if gates is None else widened(gates)
        return filtered_sum(flat, gates, layout.by_message, layout.by_target)

    def of_kinds(self, kinds: Tensor) -> Tensor:
        """Every pair's own of values by kind ``[kinds, channels]``, zeros for no bond.

        They go through rows by source and kind, of which each has few pairs: one sum over all pairs
        of a kind would be a long one.
        """
        by_source = kinds.expand(len(self.degree), *kinds.shape).flatten(0, 1)
        return spread(by_source, self.layout.by_message) * self.weight

    def square(self, pairs: Tensor) -> Tensor:
        """Values of all pairs ``[P, channels]`` as ``[B, channels, max_nodes, max_nodes]``."""
        graphs, size = self.shape
        flat = pairs.new_zeros(graphs * size * size + 1, pairs.shape[1])
        flat = flat.index_copy(0, self.layout.pair_slot, pairs)
        return flat[:-1].view(graphs, size, size, -1).movedim(-1, 1)

    def pairs(self, square: Tensor) -> Tensor:
        """The way back from :meth:`square`, zeros for padding."""
        flat = nn.functional.pad(square.movedim(1, -1).flatten(0, 2), (0, 0, 0, 1))
        return flat.index_select(0, self.layout.pair_slot)

    def adjacency(self) -> Tensor:
        """``[B, max_nodes, max_nodes]`` ones and zeros."""
        return self.square(self.weight).squeeze(1)

    def dense(self, nodes: Tensor) -> Tensor:
        """Rows of nodes ``[N, channels]`` as ``[B, max_nodes, channels]``, zeros for padding."""
        graphs, size = self.shape
        flat = nodes.new_zeros(graphs * size + 1, nodes.shape[1])
        return flat.index_copy(0, self.layout.node_slot, nodes)[:-1].view(graphs, size, -1)

    def rows(self, dense: Tensor) -> Tensor:
        """The way back from :meth:`dense`, zeros for padding."""
        flat = nn.functional.pad(dense.flatten(0, 1), (0, 0, 0, 1))
        return flat.index_select(0, self.layout.node_slot)


def return_probabilities(bonds: Bonds, steps: int) -> Tensor:
    r"""How likely a random walk is back after 1 to K steps, :math:`\bigl((D^{-1}A)^k\bigr)_{ii}`.

    Shapes: output ``[N, steps]``; zeros for a node without bonds.
    """
    adjacency = bonds.adjacency()
    walk = adjacency / adjacency.sum(dim=-1, keepdim=True).clamp_min(1.0)
    # Powers amount to nothing in bfloat16.
    with torch.autocast(walk.device.type, enabled=False):
        power, found = walk, [walk.diagonal(dim1=-2, dim2=-1)]
        for _ in range(steps - 1):
            power = power @ walk
            found.append(power.diagonal(dim1=-2, dim2=-1))
    return bonds.rows(torch.stack(found, dim=-1))


@dataclass(frozen=True)
class ShortestPaths:
    """All shortest paths of B graphs, by their length.

    Args:
        adjacency: ``[B, n, n]`` ones and zeros.
        distance: ``[B, n, n]`` bonds on a shortest path; ``max_distance + 1`` beyond that, and
            where there is no path.
        counts: for each length from 0 to ``max_distance``, the number ``[B, n, n]`` of shortest
            paths between two nodes that far apart, zeros for all others.
    """

    adjacency: Tensor
    distance: Tensor
    counts: tuple[Tensor, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, adjacency: Tensor, max_distance: int) -> ShortestPaths:
        """One matrix product a step: paths of one more bond to nodes not met before."""
        with torch.autocast(adjacency.device.type, enabled=False):
            size = adjacency.shape[-1]
            identity = torch.eye(size, dtype=adjacency.dtype, device=adjacency.device)
            counts = [identity.expand_as(adjacency)]
            unmet = 1.0 - counts[0]
            distance = (unmet * (max_distance + 1)).long()
            for length in range(1, max_distance + 1):
                counts.append((counts[-1] @ adjacency) * unmet)
                found = counts[-1] > 0
                distance = distance.masked_fill(found, length)
                unmet = unmet.masked_fill(found, 0.0)
        return cls(adjacency, distance, tuple(counts))

    def mean_along(self, hops: Tensor) -> Tensor:
        r"""The mean over shortest paths of the mean over their bonds.

        .. math::
            c_{ij} = \frac{1}{|SP_{ij}|} \sum_{p \in SP_{ij}} \frac{1}{\min(|p|, K)}
            \sum_{k=1}^{\min(|p|, K)} b^{(k)}_{p_k}

        with :math:`b^{(k)}` the value of a bond that is the k-th of a path. Sums over paths are
        taken a length at a time, from those that are one bond shorter.

        Shapes: hops ``[B, K, channels, n, n]``, zeros but for bonds; output
        ``[B, channels, n, n]``.
        """
        with torch.autocast(hops.device.type, enabled=False):
            adjacency, most = self.adjacency.unsqueeze(1), hops.shape[1]
            total = sums = torch.zeros_like(hops[:, 0])
            for length in range(1, len(self.counts)):
                sums = sums @ adjacency
                if length <= most:
                    sums = sums + self.counts[length - 1].unsqueeze(1) @ hops[:, length - 1]
                paths = self.counts[length].unsqueeze(1)
                sums = sums * (paths > 0)
                total = total + sums / (paths.clamp_min(1.0) * min(length, most))
        return total


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
        places = RingPlaces.of(batch, max_ring)
        own, used, length = places.atoms, places.used, places.length
        first = batch.starts.index_select(0, places.graph).unsqueeze(1)
        bonds = BondList.of(batch, dtype)
        last = torch.arange(max_ring, device=own.device) == length.unsqueeze(1) - 1
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
            by_graph=places.by_graph,
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
