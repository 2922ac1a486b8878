r"""Graph substructure network: GIN whose messages know the rings a bond is in."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.gin import GINUpdate
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.baselines.graphs.rings import BondList, Rings
from specformer.kernels.segments import widened
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
        self.rings = nn.Linear(num_lengths * _NUMBERS, channels, bias=False)
        self.update = GINUpdate(channels)

    def forward(
        self, nodes: Tensor, kinds: Tensor, bonds: Bonds, listed: BondList, numbers: Tensor
    ) -> Tensor:
        known = widened(listed.of_kinds(kinds) + self.rings(numbers))
        messages = (listed.at_ends(nodes).flip(0) + known).relu()  # each end hears the other
        summed = (1.0 + self.update.epsilon) * nodes + listed.to_ends(messages)
        return cast(Tensor, self.update(summed, bonds.layout.nodes))


class GSN(GraphBaseline):
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

    def build(self, *, max_ring: int = 8) -> None:
        self.max_ring = max_ring
        self.stack(lambda: GSNLayer(self.channels, max_ring - 2), bonds="each")

    def known(self, batch: PackedGraphs, bonds: Bonds) -> tuple[BondList, Tensor]:
        rings = Rings.of(batch, self.max_ring, bonds.weight.dtype)
        return rings.bonds, ring_numbers(rings)
