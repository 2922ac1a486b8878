r"""The bonds, shortest paths and rings of a batch.

The lists have a fixed length, with unused room at the end, so that a training step can be captured
although the number of bonds varies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import (
    Segments,
    Slots,
    at_least_float32,
    scattered_segments,
    segment_gather,
    segment_sum,
)
from specformer.kernels.tracing import lazy_property
from specformer.nn.conv.graph_conv import GraphPairs
from specformer.nn.conv.pair_states import RingPlaces
from specformer.spectrum.many.packed_graphs import PackedGraphs

#: Rows of an attention's bias must start at multiples of this number.
_ALIGNMENT = 8


@dataclass(frozen=True)
class Bonds:
    """The M messages of a batch, two per bond, computed once for all layers.

    Args:
        layout: positions of nodes and of pairs of nodes.
        by_target: messages by their target node, by which they are sorted.
        by_source: messages by their source node.
        kind: ``[M, kinds]`` the kind of each message's bond, one-hot; zeros for unused room.
        slots: the place of each message among ``[B * max_nodes²]``.
        counted: mask of the messages that are not unused room.
    """

    layout: GraphPairs
    by_target: Segments
    by_source: Segments
    kind: Tensor
    slots: Slots
    counted: CountedRows

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> Bonds:
        """The messages of a batch, with masks in the given precision.

        If the batch does not say how many bonds it has room for, there is room for all pairs.
        """
        layout, rows = GraphPairs(batch, dtype), len(batch.nodes)
        joined = (batch.bond > 0) & batch.pair_mask
        pair, used = _listed(joined, 2 * batch.num_bonds or len(joined))
        target = batch.target.index_select(0, pair).masked_fill(~used, rows)
        source = batch.source.index_select(0, pair).masked_fill(~used, rows)
        places = layout.pair_slots
        slot = places.index.index_select(0, pair).masked_fill(~used, places.size)
        numbers = torch.arange(rows + 1, device=pair.device)
        return cls(
            layout=layout,
            by_target=Segments(target, torch.searchsorted(target, numbers)),
            by_source=scattered_segments(source, rows),
            kind=_kinds_of(batch, pair, used, dtype),
            slots=Slots(slot, places.size),
            counted=CountedRows.of(used, dtype),
        )

    @lazy_property
    def degree(self) -> Tensor:
        """``[N, 1]`` the degree of each node."""
        return self.by_target.offsets.diff().unsqueeze(-1).to(self.layout.dtype)

    @property
    def is_isolated(self) -> Tensor:
        """``[N, 1]`` true for nodes without bonds."""
        return self.degree == 0

    @lazy_property
    def attention_bias(self) -> Tensor:
        """``[B, 1, 1, max_nodes]`` bias of attention: 0 for nodes, minus infinity for padding."""
        return aligned_rows(self.layout.tokens.weights.log())[:, None, None]

    def at_sources(self, nodes: Tensor) -> Tensor:
        """The vector of each message's source node, ``[N, channels]`` to ``[M, channels]``."""
        return segment_gather(nodes, self.by_source)

    def bond_vectors(self, kinds: Tensor) -> Tensor:
        """The vector of each message's kind of bond, ``[kinds, channels]`` to ``[M, channels]``."""
        return _chosen(self.kind, kinds)

    def sum(self, messages: Tensor) -> Tensor:
        r"""Sum of the messages to each node, :math:`\sum_{j \sim i} m_{ij}`, ``[N, channels]``."""
        return segment_sum(at_least_float32(messages), self.by_target)

    def to_dense_adj(self, messages: Tensor) -> Tensor:
        """Messages as ``[B, channels, max_nodes, max_nodes]``, zeros where there is no bond."""
        size = self.layout.batch.max_nodes
        shape = (self.layout.batch.num_graphs, size, size, messages.shape[1])
        return self.slots.scatter(messages).view(shape).movedim(-1, 1)

    def adjacency(self) -> Tensor:
        """Adjacency matrices ``[B, max_nodes, max_nodes]`` without weights."""
        return self.to_dense_adj(self.counted.share).squeeze(1)


def aligned_rows(bias: Tensor) -> Tensor:
    """The same bias, laid so that fast attention can read it; it would copy it in every layer."""
    columns = bias.shape[-1]
    return nn.functional.pad(bias, (0, -columns % _ALIGNMENT))[..., :columns]


def _listed(chosen: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The chosen pairs in a list of length ``room``, and a mask of the part that is used."""
    place = (chosen.cumsum(0) - 1).masked_fill(~chosen, room)
    numbers = torch.arange(len(chosen), device=chosen.device)
    # All other pairs go to the place past the end, which is dropped.
    pair = numbers.new_zeros(room + 1).index_copy(0, place, numbers)[:-1]
    return pair, torch.arange(room, device=chosen.device) < chosen.sum()


def _kinds_of(batch: PackedGraphs, pair: Tensor, used: Tensor, dtype: torch.dtype) -> Tensor:
    """The kind of each pair's bond, one-hot, ``[rows, kinds]``.

    A product with this matrix gives the vector of each bond, and sums gradients by kind. Segments
    would be slow, because they would be few and very long.
    """
    kinds = torch.arange(len(batch.bond_table), device=pair.device)
    found = batch.bond.index_select(0, pair).masked_fill(~used, -1)
    return (found.unsqueeze(1) == kinds).to(dtype)


def _chosen(kind: Tensor, kinds: Tensor) -> Tensor:
    with torch.autocast(kinds.device.type, enabled=False):  # selecting rows must not round them
        return kind.to(kinds.dtype) @ kinds


def return_probabilities(bonds: Bonds, steps: int) -> Tensor:
    r"""Probabilities :math:`((D^{-1}A)^k)_{ii}` that a random walk returns after 1 to K steps.

    Shapes: output ``[N, steps]``; zeros for nodes without bonds.
    """
    adjacency = bonds.adjacency()
    walk = adjacency / adjacency.sum(dim=-1, keepdim=True).clamp_min(1.0)
    # bfloat16 is not precise enough for powers.
    with torch.autocast(walk.device.type, enabled=False):
        power, found = walk, [walk.diagonal(dim1=-2, dim2=-1)]
        for _ in range(steps - 1):
            power = power @ walk
            found.append(power.diagonal(dim1=-2, dim2=-1))
    return bonds.layout.from_dense(torch.stack(found, dim=-1))


@dataclass(frozen=True)
class ShortestPaths:
    """All shortest paths of B graphs, by their length.

    Args:
        adjacency: ``[B, n, n]`` ones and zeros.
        distance: ``[B, n, n]`` number of bonds on a shortest path; ``max_distance + 1`` for longer
            paths and without a path.
        counts: for each length from 0 to ``max_distance``, the number ``[B, n, n]`` of shortest
            paths of that length between two nodes.
    """

    adjacency: Tensor
    distance: Tensor
    counts: tuple[Tensor, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, adjacency: Tensor, max_distance: int) -> ShortestPaths:
        """Find them by one matrix product per length, which extends paths to unvisited nodes."""
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

        where :math:`b^{(k)}` is the value of a bond that is the k-th of a path. The sums over paths
        of one length are computed from those over paths that are one bond shorter.

        Shapes: hops ``[B, K, channels, n, n]``, zeros except for bonds; output
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
    """The E bonds of a batch, each once and without self-loops, with padding at the end.

    Args:
        counted: mask of the rows that are not padding.
        kind: ``[E, kinds]`` the kind of each bond, one-hot.
        by_end: all bonds twice, by their first and by their second node.
        by_graph: bonds by their graph, by which they are sorted.
        row: ``[P]`` the bond of each pair (i, j) with i > j; E for other pairs and without a bond.
    """

    counted: CountedRows
    kind: Tensor
    by_end: Segments
    by_graph: Segments
    row: Tensor

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> BondList:
        """The bonds of a batch, which must say how many bonds it has room for."""
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

    def bond_vectors(self, kinds: Tensor) -> Tensor:
        """The vector of each bond's kind, ``[kinds, channels]`` to ``[E, channels]``."""
        return _chosen(self.kind, kinds)

    def at_ends(self, nodes: Tensor) -> Tensor:
        """The vectors of both nodes of every bond, ``[N, channels]`` to ``[2, E, channels]``."""
        return segment_gather(nodes, self.by_end).view(2, -1, nodes.shape[1])

    def to_ends(self, ends: Tensor) -> Tensor:
        """Sum over the bonds of each node, ``[2, E, channels]`` to ``[N, channels]``."""
        return segment_sum(ends.flatten(0, 1), self.by_end)


@dataclass(frozen=True)
class Rings:
    """The R rings of a batch, padded to L places: each is an atom and its bond to the next atom.

    Args:
        bonds: the bonds of the batch.
        used: ``[R, L, 1]`` one for a place of a ring, zero beyond its length and for padding.
        length: ``[R]`` number of atoms, and of bonds, of each ring; 0 for padding.
        counted: mask of the rows that are not padding.
        by_graph: rings by their graph, by which they are sorted.
        by_atom: the R·L places by their atom.
        by_bond: the R·L places by their bond.
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
        """The rings of a batch, which must have been packed with the same ``max_ring``."""
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
        """Sum over the atoms of each ring, ``[N, channels]`` to ``[R, channels]``."""
        return self._at_places(nodes, self.by_atom).sum(dim=1)

    def at_bonds(self, bonds: Tensor) -> Tensor:
        """The vector of each place's bond, ``[E, channels]`` to ``[R, L, channels]``."""
        return self._at_places(bonds, self.by_bond)

    def to_bonds(self, places: Tensor) -> Tensor:
        """Sum over the places of each bond, ``[R, L, channels]`` to ``[E, channels]``."""
        return segment_sum(places.flatten(0, 1), self.by_bond)

    def counts(self) -> Tensor:
        """The number of rings of 3, 4, … atoms that each bond belongs to, ``[E, L - 2]``."""
        lengths = torch.arange(3, self.used.shape[1] + 1, device=self.length.device)
        of_length = (self.length.unsqueeze(1) == lengths).to(self.used.dtype)
        return self.to_bonds(of_length.unsqueeze(1).expand(-1, self.used.shape[1], -1))

    def _at_places(self, rows: Tensor, segments: Segments) -> Tensor:
        return segment_gather(rows, segments).view(*self.used.shape[:2], -1)
