r"""Cell isomorphism network: messages among atoms, bonds and rings."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds, Rings
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import at_least_float32
from specformer.nn.conv.graph_conv import pool
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear
from specformer.spectrum.many.packed_graphs import PackedGraphs


class Cells(NamedTuple):
    """States of atoms ``[N, channels]``, of bonds ``[E, channels]`` and of rings ``[R, channels]``.

    States of padding are zero, except for atoms before the first layer.
    """

    atoms: Tensor
    bonds: Tensor
    rings: Tensor


class CellLayer(nn.Module):
    """A linear map, batch normalisation and ReLU; padding becomes zero.

    Shapes: ``[cells, in_channels]`` to ``[cells, out_channels]``.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = Linear(in_channels, out_channels)
        self.norm = BatchNorm(out_channels)

    def forward(self, cells: Tensor, counted: CountedRows) -> Tensor:
        return self.norm.activated(self.linear, cells, counted) * counted.share


class CellUpdate(nn.Module):
    r"""The new states of all cells of one dimension.

    .. math::
        h' = \mathrm{MLP}_U\bigl[\mathrm{MLP}_B\bigl((1 + \epsilon_B) h + m_B\bigr) \,\Vert\,
        \mathrm{MLP}_\uparrow\bigl((1 + \epsilon_\uparrow) h + m_\uparrow\bigr)\bigr]

    :math:`\mathrm{MLP}_U` is one :class:`CellLayer`, the others are two each.

    Shapes: cells, messages from the boundary :math:`m_B` and messages through larger cells
    :math:`m_\uparrow` ``[cells, channels]``, or None for no messages; output as cells.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.epsilons = nn.Parameter(torch.zeros(2))
        self.first = nn.ModuleList(CellLayer(channels, channels) for _ in range(2))
        self.second = nn.ModuleList(CellLayer(channels, channels) for _ in range(2))
        self.both = CellLayer(2 * channels, channels)

    def forward(
        self, cells: Tensor, bounds: Tensor | None, upper: Tensor | None, counted: CountedRows
    ) -> Tensor:
        parts = []
        for number, message in enumerate((bounds, upper)):
            summed = (1.0 + self.epsilons[number]) * cells
            summed = summed if message is None else summed + message
            parts.append(self.second[number](self.first[number](summed, counted), counted))
        return self.both(torch.cat(parts, dim=-1), counted)


class CINLayer(nn.Module):
    r"""One layer over atoms, bonds and rings.

    A cell gets messages from its boundary (a bond from its atoms, a ring from its bonds) and from
    cells of the same dimension that belong to the same larger cell (atoms of the same bond, bonds
    of the same ring).

    .. math::
        m_B(v) = \sum_{w \prec v} h_w, \qquad
        m_\uparrow(v) = \sum_{u \succ v} \sum_{\substack{w \prec u \\ w \ne v}}
        \mathrm{ReLU}(W_d [h_w \,\Vert\, h_u] + b_d)

    Each dimension has one :class:`CellUpdate`. The message of a ring to a bond is the sum over all
    bonds of the ring minus the bond's own term.

    Shapes: cells as in :class:`Cells`, with a mask of the atoms; output as cells.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.from_atoms = Linear(channels, channels, bias=False)
        self.through_bonds = Linear(channels, channels)
        self.from_bonds = Linear(channels, channels, bias=False)
        self.through_rings = Linear(channels, channels)
        self.atoms = CellUpdate(channels)
        self.bonds = CellUpdate(channels)
        self.rings = CellUpdate(channels)

    def forward(self, cells: Cells, rings: Rings, atoms: CountedRows) -> Cells:
        bonds = rings.bonds
        sent = bonds.at_ends(self.from_atoms(cells.atoms)).flip(0)  # each end gets the other's
        heard = bonds.to_ends(at_least_float32(sent + self.through_bonds(cells.bonds)).relu())
        ends = bonds.at_ends(cells.atoms).sum(dim=0)
        sides = rings.at_bonds(cells.bonds)
        shared = self.from_bonds(sides) + self.through_rings(cells.rings).unsqueeze(1)
        shared = at_least_float32(shared).relu() * rings.used
        others = rings.to_bonds(shared.sum(dim=1, keepdim=True) - shared)
        return Cells(
            self.atoms(cells.atoms, None, heard, atoms),
            self.bonds(cells.bonds, ends, others, bonds.counted),
            self.rings(cells.rings, sides.sum(dim=1), None, rings.counted),
        )


class CIN(GraphBaseline):
    r"""Cell isomorphism network on atoms, bonds and rings.

    From `"Weisfeiler and Lehman Go Cellular: CW Networks" <https://arxiv.org/abs/2106.12575>`_. A
    ring starts as the sum of its atoms. The read-out differs from that of other models:

    .. math::
        y = W \sum_d \mathrm{ReLU}\bigl(W_d \, \mathrm{pool}_{\dim v = d} \, h_v + b_d\bigr) + b

    Its hidden layer is twice as wide, with dropout before the last map.

    Args:
        max_ring: atoms of the largest rings; batches must be packed with the same ``max_ring``.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    max_ring: int

    def build(self, *, max_ring: int = 6) -> None:
        channels, wide = self.channels, 2 * self.channels
        self.max_ring = max_ring
        self.bonds = self.bond_embedding()
        self.layers = nn.ModuleList(CINLayer(channels) for _ in range(self.depth))
        self.lifts = nn.ModuleList(Linear(channels, wide) for _ in Cells._fields)
        self.head = nn.Identity()
        self.readout = Linear(wide, self.readout.out_features)

    def pooled(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        rings = Rings.of(batch, self.max_ring, bonds.layout.dtype)
        atoms: Tensor = self.atoms(batch)
        kinds = self.bonds(batch.bond_table)
        cells = Cells(atoms, rings.bonds.bond_vectors(kinds), rings.of_atoms(atoms))
        for layer in self.layers:
            cells = layer(cells, rings, bonds.layout.nodes)
        graphs = (bonds.layout.by_graph, rings.bonds.by_graph, rings.by_graph)
        lifted = [
            lift(pool(states, by_graph, self.pooling)).relu()
            for lift, states, by_graph in zip(self.lifts, cells, graphs, strict=True)
        ]
        return self.dropout(at_least_float32(lifted[0] + lifted[1] + lifted[2]))
