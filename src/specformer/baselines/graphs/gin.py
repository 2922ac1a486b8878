r"""GIN, and what builds on it: GSN, which knows rings, and GIN-AK+, on surroundings of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import BondList, Bonds, Rings, ShortestPaths
from specformer.baselines.graphs.graph_baseline import GraphBaseline, normalised
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import at_least_float32, segment_gather, segment_sum
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.spectrum.many.packed_graphs import PackedGraphs


def gine_sum(nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
    r"""What neighbours send, :math:`\sum_{j \sim i} \mathrm{ReLU}(h_j + e_{ij})`."""
    return bonds.sum((bonds.sent(nodes) + bonds.of_kinds(kinds)).relu())


class GINUpdate(nn.Module):
    """The network of GIN, of width 2d with a batch norm within, and its ε.

    Shapes: rows ``[rows, channels]``, of which some count; output alike.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.first = nn.Linear(channels, 2 * channels)
        self.norm = BatchNorm(2 * channels)
        self.second = nn.Linear(2 * channels, channels)

    def forward(self, summed: Tensor, counted: CountedRows) -> Tensor:
        hidden = normalised(self.norm, self.first(summed), counted).relu()
        return self.second(hidden)


class GINLayer(nn.Module):
    r"""One layer, :math:`\mathrm{MLP}\bigl((1 + \epsilon) h_i + \sum_{j \sim i} m_{ij}\bigr)`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.update = GINUpdate(channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
        summed = (1.0 + self.update.epsilon) * nodes + gine_sum(nodes, kinds, bonds)
        return self.update(summed, bonds.layout.nodes)


class GIN(GraphBaseline):
    r"""Graph isomorphism network, its messages with features of bonds (GINE).

    From `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_ and
    `"Strategies for Pre-training Graph Neural Networks" <https://arxiv.org/abs/1905.12265>`_.

    .. math::
        h_i^{(l+1)} = h_i^{(l)} + \mathrm{ReLU}\Bigl(\mathrm{BN}\,\mathrm{MLP}\bigl(
        (1 + \epsilon_l) h_i^{(l)} + \sum_{j \sim i} \mathrm{ReLU}(h_j^{(l)} + e_{ij}^{(l)})
        \bigr)\Bigr)
    """

    def build(self) -> None:
        self.stack(lambda: GINLayer(self.channels), bonds="each")


#: Numbers of rings of one length that are told apart: 0, 1, 2, 3, and 4 or more.
_NUMBERS = 5


def ring_numbers(rings: Rings) -> Tensor:
    """In how many rings of each length a bond is, ``[E, (L - 2) * 5]``: a one for each length.

    The columns of a length stand for 0, 1, 2, 3, and 4 or more.
    """
    counts = rings.counts()
    numbers = torch.arange(_NUMBERS, device=counts.device)
    told = counts.clamp_max(_NUMBERS - 1).unsqueeze(-1) == numbers
    return told.to(counts.dtype).flatten(1)


class GSNLayer(nn.Module):
    r"""One layer, with a batch norm within its MLP of width 2d.

    .. math::
        h_i' = \mathrm{MLP}\Bigl((1 + \epsilon) h_i + \sum_{j \sim i} \mathrm{ReLU}\bigl(
        h_j + e_{ij} + \sum_k W^{(k)}_{c_k(i, j)}\bigr)\Bigr)

    with :math:`c_k(i, j)` the rings of k atoms that the bond is in.

    Shapes: nodes ``[N, channels]``, of which some count, kinds ``[kinds, channels]``, numbers
    ``[E, num_lengths * 5]`` from :func:`ring_numbers`, output as nodes.
    """

    def __init__(self, channels: int, num_lengths: int) -> None:
        super().__init__()
        self.rings = nn.Linear(num_lengths * _NUMBERS, channels, bias=False)
        self.update = GINUpdate(channels)

    def forward(
        self, nodes: Tensor, kinds: Tensor, bonds: Bonds, listed: BondList, numbers: Tensor
    ) -> Tensor:
        known = at_least_float32(listed.of_kinds(kinds) + self.rings(numbers))
        messages = (listed.at_ends(nodes).flip(0) + known).relu()  # each end hears the other
        summed = (1.0 + self.update.epsilon) * nodes + listed.to_ends(messages)
        return self.update(summed, bonds.layout.nodes)


class GSN(GraphBaseline):
    """Graph substructure network with rings as substructures, counted for bonds (GSN-e).

    From `"Improving Graph Neural Network Expressivity via Subgraph Isomorphism
    Counting" <https://arxiv.org/abs/2006.09252>`_, on GIN with features of bonds. Its authors so
    count induced cycles on MolHIV; on ZINC they count all cycles, for atoms (GSN-v).

    Args:
        max_ring: atoms of the largest rings; batches must hold those up to there.

    All others, and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    max_ring: int

    def build(self, *, max_ring: int = 8) -> None:
        self.max_ring = max_ring
        self.stack(lambda: GSNLayer(self.channels, max_ring - 2), bonds="each")

    def known(self, batch: PackedGraphs, bonds: Bonds) -> tuple[BondList, Tensor]:
        rings = Rings.of(batch, self.max_ring, bonds.layout.dtype)
        return rings.bonds, ring_numbers(rings)


@dataclass(frozen=True)
class Surroundings:
    """Which nodes j lie within some bonds of a node i, its surroundings.

    Args:
        square: ``[B, 1, max_nodes, max_nodes]`` one where j is within i's, else zero.
        distance: ``[P, hops + 1]`` the same of pairs, one at their distance.
        counted: which pairs those are.
        size: ``[N, 1]`` nodes of each node's surroundings, at least one.
    """

    square: Tensor
    distance: Tensor
    counted: CountedRows
    size: Tensor

    @classmethod
    def of(cls, bonds: Bonds, hops: int) -> Surroundings:
        """All nodes within ``hops`` bonds, and the node itself."""
        near = ShortestPaths.of(bonds.adjacency(), hops).distance
        dtype = bonds.layout.dtype
        steps = torch.arange(hops + 1, device=near.device)
        distance = bonds.pairs((near.unsqueeze(1) == steps[:, None, None]).to(dtype))
        joined = distance.sum(dim=-1)
        return cls(
            square=(near <= hops).to(dtype).unsqueeze(1),
            distance=distance,
            counted=CountedRows.of(joined > 0, dtype),
            size=bonds.layout.by_target.sum(joined.unsqueeze(-1)).clamp_min(1.0),
        )


class GINAKLayer(nn.Module):
    r"""One layer of GIN on all surroundings, then three readings of them.

    .. math::
        z_{j|i} &= \mathrm{MLP}\bigl((1 + \epsilon) h_j + \sum_{k \sim j,\, k \in N(i)}
        \mathrm{ReLU}(h_k + e_{jk})\bigr) \\
        h_i' &= W \bigl[z_{i|i} \,\Vert\, \mathrm{mean}_{j \in N(i)}\, \sigma(a_{d(i,j)}) \odot
        z_{j|i} \,\Vert\, \mathrm{mean}_{j:\, i \in N(j)}\, \sigma(b_{d(i,j)}) \odot z_{i|j}\bigr]
        + c

    the node in its own surroundings, the surroundings as a whole, and the node in those of others;
    gates depend on the distance. The sum over k is a product of matrices over all pairs (i, j).
    """

    def __init__(self, channels: int, hops: int) -> None:
        super().__init__()
        self.update = GINUpdate(channels)
        self.within = nn.Linear(hops + 1, channels, bias=False)
        self.among = nn.Linear(hops + 1, channels, bias=False)
        self.fuse = nn.Linear(3 * channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds, around: Surroundings) -> Tensor:
        states = self.states(nodes, kinds, around, bonds)
        layout = bonds.layout
        readings = (
            segment_sum(states * layout.identity.unsqueeze(-1), layout.by_target),
            segment_sum(states * self.within(around.distance).sigmoid(), layout.by_target)
            / around.size,
            segment_sum(states * self.among(around.distance).sigmoid(), bonds.layout.by_source)
            / around.size,
        )
        return self.fuse(torch.cat(readings, dim=-1))

    def states(self, nodes: Tensor, kinds: Tensor, around: Surroundings, bonds: Bonds) -> Tensor:
        """Node j in the surroundings of i, pair by pair ``[P, channels]``; zeros for all others."""
        sent = bonds.square((bonds.sent(nodes) + bonds.of_kinds(kinds)).relu())
        summed = bonds.pairs(around.square @ at_least_float32(sent).mT)
        own = (1.0 + self.update.epsilon) * segment_gather(nodes, bonds.layout.by_source)
        return at_least_float32(self.update(own + summed, around.counted)) * around.counted.share


class GINAK(GraphBaseline):
    """GIN as kernel over surroundings, with contexts and distances (GIN-AK+).

    From `"From Stars to Subgraphs: Uplifting Any GNN with Local Structure
    Awareness" <https://arxiv.org/abs/2110.03753>`_, all surroundings in every step.

    Args:
        hops: bonds to the rim of the surroundings.

    All others, and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    def build(self, *, hops: int = 3) -> None:
        self.hops = hops
        self.stack(lambda: GINAKLayer(self.channels, hops), bonds="each")

    def known(self, batch: PackedGraphs, bonds: Bonds) -> tuple[Surroundings]:  # noqa: ARG002
        return (Surroundings.of(bonds, self.hops),)
