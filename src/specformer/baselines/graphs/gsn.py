r"""Graph substructure network: GIN whose messages know the rings a bond is in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.parts.bond_list import BondList
from specformer.baselines.graphs.parts.bonds import Bonds
from specformer.baselines.graphs.parts.graph_baseline import (
    BondEmbedding,
    PooledBaseline,
    check_max_ring,
    normalised,
)
from specformer.baselines.graphs.parts.ring_list import Rings
from specformer.kernels.masked_norm import CountedRows
from specformer.kernels.segments import widened
from specformer.nn.conv.graph_pairs import Pooling
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.pretrained import given
from specformer.spectrum.many.packed_graphs import PackedGraphs

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

    Args:
        channels: d.
        num_lengths: lengths k of rings.

    Shapes: nodes ``[N, channels]``, of which some count, kinds ``[kinds, channels]``, numbers
    ``[E, num_lengths * 5]`` from :func:`ring_numbers`, output as nodes.
    """

    def __init__(self, channels: int, num_lengths: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.rings = nn.Linear(num_lengths * _NUMBERS, channels, bias=False)
        self.first = nn.Linear(channels, 2 * channels)
        self.norm = BatchNorm(2 * channels)
        self.second = nn.Linear(2 * channels, channels)

    def forward(
        self,
        nodes: Tensor,
        kinds: Tensor,
        numbers: Tensor,
        bonds: BondList,
        counted: CountedRows,
    ) -> Tensor:
        known = widened(bonds.of_kinds(kinds) + self.rings(numbers))
        messages = (bonds.at_ends(nodes).flip(0) + known).relu()  # each end hears the other
        summed = (1.0 + self.epsilon) * nodes + bonds.to_ends(messages)
        hidden = normalised(self.norm, self.first(summed), counted).relu()
        out: Tensor = self.second(hidden)
        return out


class GSN(PooledBaseline):
    r"""Graph substructure network with rings as substructures, counted for bonds (GSN-e).

    From `"Improving Graph Neural Network Expressivity via Subgraph Isomorphism
    Counting" <https://arxiv.org/abs/2006.09252>`_, on GIN with features of bonds. Its authors so
    count induced cycles on MolHIV; on ZINC they count all cycles, for atoms (GSN-v).

    .. math::
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}(\mathrm{BN}(\mathrm{GSNLayer}(h^{(l)}, e^{(l)}, c)))

    Args:
        max_ring: atoms of the largest rings; batches must hold those up to there.

    All others, and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.

    Example:
        >>> GSN([28], [4], 16, 1, max_ring=6).layers[0].rings
        Linear(in_features=20, out_features=16, bias=False)
    """

    max_ring: int

    def __init__(
        self,
        node_cardinalities: Sequence[int],
        edge_cardinalities: Sequence[int],
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 4,
        *,
        max_ring: int = 8,
        pooling: Pooling = "mean",
        dropout: float = 0.0,
        in_channels: int = 0,
    ) -> None:
        super().__init__(given(locals()))
        self.max_ring = check_max_ring(max_ring)
        layers = range(num_layers)
        self.bonds = nn.ModuleList(
            BondEmbedding(edge_cardinalities, hidden_channels) for _ in layers
        )
        self.layers = nn.ModuleList(GSNLayer(hidden_channels, max_ring - 2) for _ in layers)
        self.norms = nn.ModuleList(BatchNorm(hidden_channels) for _ in layers)

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        nodes: Tensor = self.atoms(batch)
        rings, counted = Rings.of(batch, self.max_ring, bonds.weight.dtype), bonds.layout.nodes
        numbers = ring_numbers(rings)
        for embedding, layer, norm in zip(self.bonds, self.layers, self.norms, strict=True):
            out = layer(nodes, embedding(batch.bond_table), numbers, rings.bonds, counted)
            nodes = self.updated(nodes, norm, out, counted)
        return nodes
