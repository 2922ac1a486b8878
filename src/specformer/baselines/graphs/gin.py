r"""GIN, GSN (GIN with counts of rings) and GIN-AK+ (GIN on the neighbourhoods of nodes)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import BondList, Bonds, Rings, ShortestPaths
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import (
    Segments,
    Slots,
    at_least_float32,
    scattered_segments,
    segment_gather,
    segment_sum,
)
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear
from specformer.spectrum.many.packed_graphs import PackedGraphs


def gine_sum(nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
    r"""Sum of the neighbours' messages, :math:`\sum_{j \sim i} \mathrm{ReLU}(h_j + e_{ij})`."""
    return bonds.sum((bonds.at_sources(nodes) + bonds.bond_vectors(kinds)).relu())


class GINUpdate(nn.Module):
    """The MLP of GIN, with a hidden layer of width 2d and batch norm, and its ε.

    Shapes: input and output ``[rows, channels]``, with a mask of the rows that count.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.first = Linear(channels, 2 * channels)
        self.norm = BatchNorm(2 * channels)
        self.second = Linear(2 * channels, channels)

    def forward(self, summed: Tensor, counted: CountedRows) -> Tensor:
        return self.second(self.norm.activated(self.first, summed, counted))


class GINLayer(nn.Module):
    r"""One layer, :math:`\mathrm{MLP}\bigl((1 + \epsilon) h_i + \sum_{j \sim i} m_{ij}\bigr)`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.update = GINUpdate(channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
        summed = (1.0 + self.update.epsilon) * nodes + gine_sum(nodes, kinds, bonds)
        return self.update(summed, bonds.layout.nodes)


class GIN(GraphBaseline):
    r"""Graph isomorphism network with edge features (GINE).

    From `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_ and
    `"Strategies for Pre-training Graph Neural Networks" <https://arxiv.org/abs/1905.12265>`_.

    .. math::
        h_i^{(l+1)} = h_i^{(l)} + \mathrm{ReLU}\Bigl(\mathrm{BN}\,\mathrm{MLP}\bigl(
        (1 + \epsilon_l) h_i^{(l)} + \sum_{j \sim i} \mathrm{ReLU}(h_j^{(l)} + e_{ij}^{(l)})
        \bigr)\Bigr)
    """

    def build(self) -> None:
        self.stack(lambda: GINLayer(self.channels), bonds="each")


#: Classes of the number of rings of one length: 0, 1, 2, 3, and 4 or more.
_NUMBERS = 5


def ring_numbers(rings: Rings) -> Tensor:
    """One-hot numbers of rings of each length that a bond belongs to, ``[E, (L - 2) * 5]``.

    Each length has columns for 0, 1, 2, 3, and 4 or more rings.
    """
    counts = rings.counts()
    numbers = torch.arange(_NUMBERS, device=counts.device)
    told = counts.clamp_max(_NUMBERS - 1).unsqueeze(-1) == numbers
    return told.to(counts.dtype).flatten(1)


class GSNLayer(nn.Module):
    r"""One layer of GSN.

    .. math::
        h_i' = \mathrm{MLP}\Bigl((1 + \epsilon) h_i + \sum_{j \sim i} \mathrm{ReLU}\bigl(
        h_j + e_{ij} + \sum_k W^{(k)}_{c_k(i, j)}\bigr)\Bigr)

    where :math:`c_k(i, j)` is the number of rings of k atoms that the bond belongs to.

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, numbers ``[E, num_lengths * 5]``
    from :func:`ring_numbers`, output as nodes.
    """

    def __init__(self, channels: int, num_lengths: int) -> None:
        super().__init__()
        self.rings = Linear(num_lengths * _NUMBERS, channels, bias=False)
        self.update = GINUpdate(channels)

    def forward(
        self, nodes: Tensor, kinds: Tensor, bonds: Bonds, listed: BondList, numbers: Tensor
    ) -> Tensor:
        known = at_least_float32(listed.bond_vectors(kinds) + self.rings(numbers))
        messages = (listed.at_ends(nodes).flip(0) + known).relu()  # from the other end
        summed = (1.0 + self.update.epsilon) * nodes + listed.to_ends(messages)
        return self.update(summed, bonds.layout.nodes)


class GSN(GraphBaseline):
    """Graph substructure network: GIN with edge features and the number of rings per bond (GSN-e).

    From `"Improving Graph Neural Network Expressivity via Subgraph Isomorphism
    Counting" <https://arxiv.org/abs/2006.09252>`_. The authors also count induced cycles per bond
    on MolHIV, but all cycles per atom on ZINC (GSN-v).

    Args:
        max_ring: atoms of the largest rings; batches must be packed with the same ``max_ring``.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    max_ring: int

    def build(self, *, max_ring: int = 8) -> None:
        self.max_ring = max_ring
        self.stack(lambda: GSNLayer(self.channels, max_ring - 2), bonds="each")

    def layer_inputs(self, batch: PackedGraphs, bonds: Bonds) -> tuple[BondList, Tensor]:
        rings = Rings.of(batch, self.max_ring, bonds.layout.dtype)
        return rings.bonds, ring_numbers(rings)


@dataclass(frozen=True)
class Neighbourhoods:
    """The neighbourhood of every node i: the nodes j within a number of bonds.

    Args:
        square: ``[B, max_nodes, max_nodes]`` one if j is in the neighbourhood of i, else zero.
        slots: the place of each message (j to i) among these, at (j, i).
        counted: mask of the pairs (i, j) with j in the neighbourhood of i.
        by_target: these pairs by i and their distance, ``N * (hops + 1)`` segments.
        by_source: these pairs by j and their distance.
        size: ``[N, 1]`` number of nodes of each neighbourhood, at least one.
    """

    square: Tensor
    slots: Slots
    counted: CountedRows
    by_target: Segments
    by_source: Segments
    size: Tensor

    @classmethod
    def of(cls, bonds: Bonds, hops: int) -> Neighbourhoods:
        """The neighbourhoods of all nodes within ``hops`` bonds, including the node itself."""
        layout, batch = bonds.layout, bonds.layout.batch
        near = ShortestPaths.of(bonds.adjacency(), hops).distance
        padded = nn.functional.pad(near.flatten(), (0, 1), value=hops + 1)
        distance = padded.index_select(0, layout.pair_slots.index)
        joined = distance <= hops
        rows = len(batch.graph)

        def segments(node: Tensor) -> Segments:
            index = (node * (hops + 1) + distance).masked_fill(~joined, rows * (hops + 1))
            return scattered_segments(index, rows * (hops + 1))

        counted = CountedRows.of(joined, layout.dtype)
        side = batch.max_nodes
        slot = bonds.slots.index
        graph, place = slot // side**2, slot % side**2
        return cls(
            square=(near <= hops).to(layout.dtype),
            slots=Slots(graph * side**2 + place % side * side + place // side, bonds.slots.size),
            counted=counted,
            by_target=segments(batch.target),
            by_source=segments(batch.source),
            size=layout.by_target.sum(counted.share).clamp_min(1.0),
        )


class GINAKLayer(nn.Module):
    r"""One layer of GIN on all neighbourhoods, then three ways to read a node's state from them.

    .. math::
        z_{j|i} &= \mathrm{MLP}\bigl((1 + \epsilon) h_j + \sum_{k \sim j,\, k \in N(i)}
        \mathrm{ReLU}(h_k + e_{jk})\bigr) \\
        h_i' &= W \bigl[z_{i|i} \,\Vert\, \mathrm{mean}_{j \in N(i)}\, \sigma(a_{d(i,j)}) \odot
        z_{j|i} \,\Vert\, \mathrm{mean}_{j:\, i \in N(j)}\, \sigma(b_{d(i,j)}) \odot z_{i|j}\bigr]
        + c

    The three parts are the node in its own neighbourhood, the mean of its neighbourhood, and the
    mean of the node in other neighbourhoods. The gates depend on the distance, so states are summed
    by distance first. The sum over k is a matrix product over all pairs (i, j).
    """

    def __init__(self, channels: int, hops: int) -> None:
        super().__init__()
        self.update = GINUpdate(channels)
        self.within = Linear(hops + 1, channels, bias=False)
        self.among = Linear(hops + 1, channels, bias=False)
        self.fuse = Linear(3 * channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds, around: Neighbourhoods) -> Tensor:
        states = self.states(nodes, kinds, around, bonds)
        within, among = (
            segment_sum(states, segments).unflatten(0, (len(nodes), -1))  # [N, hops + 1, channels]
            for segments in (around.by_target, around.by_source)
        )
        readings = (
            within[:, 0],
            (within * self.within.weight.mT.sigmoid()).sum(dim=1) / around.size,
            (among * self.among.weight.mT.sigmoid()).sum(dim=1) / around.size,
        )
        return self.fuse(torch.cat(readings, dim=-1))

    def states(self, nodes: Tensor, kinds: Tensor, around: Neighbourhoods, bonds: Bonds) -> Tensor:
        """State of node j in the neighbourhood of i for every pair ``[P, channels]``.

        Those of pairs with j outside the neighbourhood are arbitrary.
        """
        layout = bonds.layout
        messages = at_least_float32((bonds.at_sources(nodes) + bonds.bond_vectors(kinds)).relu())
        sent = around.slots.scatter(messages).view(*around.square.shape, -1)  # [B, k, j, channels]
        summed = (around.square @ sent.flatten(2)).view_as(sent)  # [B, i, j, channels]
        own = segment_gather((1.0 + self.update.epsilon) * nodes, layout.by_source)
        summed = own + layout.pair_slots.gather(summed.flatten(0, -2))
        return at_least_float32(self.update(summed, around.counted))


class GINAK(GraphBaseline):
    """GIN on the neighbourhoods of all nodes, with contexts and distances (GIN-AK+).

    From `"From Stars to Subgraphs: Uplifting Any GNN with Local Structure
    Awareness" <https://arxiv.org/abs/2110.03753>`_, without sampling of neighbourhoods.

    Args:
        hops: radius of the neighbourhoods, in bonds.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    def build(self, *, hops: int = 3) -> None:
        self.hops = hops
        self.stack(lambda: GINAKLayer(self.channels, hops), bonds="each")

    def layer_inputs(self, batch: PackedGraphs, bonds: Bonds) -> tuple[Neighbourhoods]:  # noqa: ARG002
        return (Neighbourhoods.of(bonds, self.hops),)
