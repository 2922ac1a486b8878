r"""The bonds and the rings of a batch, as lists of a length that the batch's shape decides.

Only the data know how many bonds there are. A list with some room at its end has a fixed length, so
that a step can be captured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import (
    Segments,
    at_least_float32,
    scattered_segments,
    segment_gather,
    segment_sum,
)
from specformer.kernels.tracing import lazy_property
from specformer.nn.conv.graph_conv import GraphPairs
from specformer.nn.conv.ring_places import RingPlaces
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class Bonds:
    """Who hears from whom: M messages, two for each bond, worked out once for all layers.

    Args:
        layout: where rows and pairs of nodes lie.
        by_target: messages by the node that hears them; those of one node are neighbours.
        by_source: messages by the node that sends them.
        kind: ``[M, kinds]`` one at the kind of a message's bond; zeros for unused room.
        slot: ``[M]`` a message's place in a square of all pairs; one past the end if unused.
        counted: which rows are messages, for normalisation.
    """

    layout: GraphPairs
    by_target: Segments
    by_source: Segments
    kind: Tensor
    slot: Tensor
    counted: CountedRows

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> Bonds:
        """The bonds of a batch, weights in the given precision.

        A batch that does not say how many bonds it has room for may have one between any two nodes.
        """
        layout, rows = GraphPairs(batch, dtype), len(batch.nodes)
        joined = (batch.bond > 0) & batch.pair_mask
        pair, used = _listed(joined, 2 * batch.num_bonds or len(joined))
        target = batch.target.index_select(0, pair).masked_fill(~used, rows)
        source = batch.source.index_select(0, pair).masked_fill(~used, rows)
        past = batch.num_graphs * batch.max_nodes**2
        numbers = torch.arange(rows + 1, device=pair.device)
        return cls(
            layout=layout,
            by_target=Segments(target, torch.searchsorted(target, numbers)),
            by_source=scattered_segments(source, rows),
            kind=_kinds_of(batch, pair, used, dtype),
            slot=layout.pair_slot.index_select(0, pair).masked_fill(~used, past),
            counted=CountedRows.of(used, dtype),
        )

    @lazy_property
    def degree(self) -> Tensor:
        """``[N, 1]`` bonds of each node."""
        return self.by_target.offsets.diff().unsqueeze(-1).to(self.layout.dtype)

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

    def sent(self, nodes: Tensor) -> Tensor:
        """What the sources of all messages have, ``[N, channels]`` to ``[M, channels]``."""
        return segment_gather(nodes, self.by_source)

    def of_kinds(self, kinds: Tensor) -> Tensor:
        """What the bonds have, by kind ``[kinds, channels]`` to ``[M, channels]``."""
        return _chosen(self.kind, kinds)

    def sum(self, messages: Tensor) -> Tensor:
        r"""What every node hears, :math:`\sum_{j \sim i} m_{ij}`, ``[N, channels]``."""
        return segment_sum(at_least_float32(messages), self.by_target)

    def square(self, messages: Tensor) -> Tensor:
        """Messages as ``[B, channels, max_nodes, max_nodes]``, zeros where there is no bond."""
        graphs, size = self.shape
        flat = messages.new_zeros(graphs * size * size + 1, messages.shape[1])
        flat = flat.index_copy(0, self.slot, messages)
        return flat[:-1].view(graphs, size, size, -1).movedim(-1, 1)

    def pairs(self, square: Tensor) -> Tensor:
        """Values of such a square for all pairs of nodes ``[P, channels]``, zeros for padding."""
        flat = nn.functional.pad(square.movedim(1, -1).flatten(0, 2), (0, 0, 0, 1))
        return flat.index_select(0, self.layout.pair_slot)

    def adjacency(self) -> Tensor:
        """``[B, max_nodes, max_nodes]`` ones and zeros."""
        return self.square(self.counted.share).squeeze(1)

    def dense(self, nodes: Tensor) -> Tensor:
        """Rows of nodes ``[N, channels]`` as ``[B, max_nodes, channels]``, zeros for padding."""
        graphs, size = self.shape
        flat = nodes.new_zeros(graphs * size + 1, nodes.shape[1])
        return flat.index_copy(0, self.layout.node_slot, nodes)[:-1].view(graphs, size, -1)

    def rows(self, dense: Tensor) -> Tensor:
        """The way back from :meth:`dense`, zeros for padding."""
        flat = nn.functional.pad(dense.flatten(0, 1), (0, 0, 0, 1))
        return flat.index_select(0, self.layout.node_slot)


def _listed(chosen: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The numbers of the pairs that are chosen, one after another, and which of them are used."""
    place = (chosen.cumsum(0) - 1).masked_fill(~chosen, room)
    numbers = torch.arange(len(chosen), device=chosen.device)
    # The place past the end takes all other pairs and is thrown away.
    pair = numbers.new_zeros(room + 1).index_copy(0, place, numbers)[:-1]
    return pair, torch.arange(room, device=chosen.device) < chosen.sum()


def _kinds_of(batch: PackedGraphs, pair: Tensor, used: Tensor, dtype: torch.dtype) -> Tensor:
    """A one at each pair's kind of bond, ``[rows, kinds]``.

    A product with it finds a bond's vector, and adds up gradients by kind: a segment for each kind
    would be a few very long ones.
    """
    kinds = torch.arange(len(batch.bond_table), device=pair.device)
    found = batch.bond.index_select(0, pair).masked_fill(~used, -1)
    return (found.unsqueeze(1) == kinds).to(dtype)


def _chosen(kind: Tensor, kinds: Tensor) -> Tensor:
    with torch.autocast(kinds.device.type, enabled=False):  # vectors keep their digits
        return kind.to(kinds.dtype) @ kinds


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
        kind: ``[E, kinds]`` one at the kind of a bond.
        by_end: all bonds twice, by the row of one end and by that of the other.
        by_graph: bonds by their graph, in its order.
        row: ``[P]`` the bond of a pair (i, j) with i > j; E for any other pair, and for no bond.
    """

    counted: CountedRows
    kind: Tensor
    by_end: Segments
    by_graph: Segments
    row: Tensor

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> BondList:
        """The bonds of a batch that says how many it has room for."""
        room, num_nodes = batch.num_bonds, len(batch.nodes)
        is_first = (batch.bond > 0) & batch.pair_mask & (batch.source < batch.target)
        pair, used = _listed(is_first, room)
        row = (is_first.cumsum(0) - 1).masked_fill(~is_first, room)

        def of_bonds(values: Tensor, none: int) -> Tensor:
            return values.index_select(0, pair).masked_fill(~used, none)

        ends = [of_bonds(end, num_nodes) for end in (batch.target, batch.source)]
        graph = of_bonds(batch.graph.index_select(0, batch.target), batch.num_graphs)
        numbers = torch.arange(batch.num_graphs + 1, device=row.device)
        return cls(
            counted=CountedRows.of(used, dtype),
            kind=_kinds_of(batch, pair, used, dtype),
            by_end=scattered_segments(torch.cat(ends), num_nodes),
            by_graph=Segments(graph, torch.searchsorted(graph, numbers)),
            row=row,
        )

    def of_kinds(self, kinds: Tensor) -> Tensor:
        """Every bond's own of values by kind, ``[kinds, channels]`` to ``[E, channels]``."""
        return _chosen(self.kind, kinds)

    def at_ends(self, nodes: Tensor) -> Tensor:
        """The two ends of every bond, ``[N, channels]`` to ``[2, E, channels]``."""
        return segment_gather(nodes, self.by_end).view(2, -1, nodes.shape[1])

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
        first = batch.starts.index_select(0, places.by_graph.index).unsqueeze(1)
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
        return segment_gather(rows, segments).view(*self.used.shape[:2], -1)
