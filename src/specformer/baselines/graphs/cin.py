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
from specformer.spectrum.many.packed_graphs import PackedGraphs


class Cells(NamedTuple):
    """States of atoms ``[N, channels]``, of bonds ``[E, channels]`` and of rings ``[R, channels]``.

    Those of padding are zero, but for atoms before the first layer.
    """

    atoms: Tensor
    bonds: Tensor
    rings: Tensor


class CellLayer(nn.Module):
    """A linear map, batch normalisation and ReLU; rows that are not cells become zero.

    Shapes: ``[cells, in_channels]`` to ``[cells, out_channels]``.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)
        self.norm = BatchNorm(out_channels)

    def forward(self, cells: Tensor, counted: CountedRows) -> Tensor:
        return self.norm.activated(self.linear, cells, counted) * counted.share


class CellUpdate(nn.Module):
    r"""The new states of all cells of one dimension.

    .. math::
        h' = \mathrm{MLP}_U\bigl[\mathrm{MLP}_B\bigl((1 + \epsilon_B) h + m_B\bigr) \,\Vert\,
        \mathrm{MLP}_\uparrow\bigl((1 + \epsilon_\uparrow) h + m_\uparrow\bigr)\bigr]

    with one :class:`CellLayer` for :math:`\mathrm{MLP}_U` and two for either of the others.

    Shapes: cells, what bounds them :math:`m_B` and what comes through larger cells
    :math:`m_\uparrow` ``[cells, channels]``, None for nothing; output as cells.
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

    A cell hears from its boundary, the atoms of a bond and the bonds of a ring, and from cells of
    its own dimension through those that both bound: neighbours through a bond, bonds through a
    ring.

    .. math::
        m_B(v) = \sum_{w \prec v} h_w, \qquad
        m_\uparrow(v) = \sum_{u \succ v} \sum_{\substack{w \prec u \\ w \ne v}}
        \mathrm{ReLU}(W_d [h_w \,\Vert\, h_u] + b_d)

    They go into one :class:`CellUpdate` per dimension. A ring sends a bond the sum over all of its
    bonds less the bond's own.

    Shapes: cells as :class:`Cells` says, of which some atoms count; output alike.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.from_atoms = nn.Linear(channels, channels, bias=False)
        self.through_bonds = nn.Linear(channels, channels)
        self.from_bonds = nn.Linear(channels, channels, bias=False)
        self.through_rings = nn.Linear(channels, channels)
        self.atoms = CellUpdate(channels)
        self.bonds = CellUpdate(channels)
        self.rings = CellUpdate(channels)

    def forward(self, cells: Cells, rings: Rings, atoms: CountedRows) -> Cells:
        bonds = rings.bonds
        sent = bonds.at_ends(self.from_atoms(cells.atoms)).flip(0)  # each end hears the other
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
    ring starts as the sum of its atoms. The last layers are its own:

    .. math::
        y = W \sum_d \mathrm{ReLU}\bigl(W_d \, \mathrm{pool}_{\dim v = d} \, h_v + b_d\bigr) + b

    twice as wide within, and with dropout before the last map.

    Args:
        max_ring: atoms of the largest rings; batches must hold those up to there.

    All others, and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    max_ring: int

    def build(self, *, max_ring: int = 6) -> None:
        channels, wide = self.channels, 2 * self.channels
        self.max_ring = max_ring
        self.bonds = self.bond_embedding()
        self.layers = nn.ModuleList(CINLayer(channels) for _ in range(self.depth))
        self.lifts = nn.ModuleList(nn.Linear(channels, wide) for _ in Cells._fields)
        self.head = nn.Identity()
        self.readout = nn.Linear(wide, self.readout.out_features)

    def pooled(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        rings = Rings.of(batch, self.max_ring, bonds.layout.dtype)
        atoms: Tensor = self.atoms(batch)
        kinds = self.bonds(batch.bond_table)
        cells = Cells(atoms, rings.bonds.of_kinds(kinds), rings.of_atoms(atoms))
        for layer in self.layers:
            cells = layer(cells, rings, bonds.layout.nodes)
        graphs = (bonds.layout.by_graph, rings.bonds.by_graph, rings.by_graph)
        lifted = [
            lift(pool(states, by_graph, self.pooling)).relu()
            for lift, states, by_graph in zip(self.lifts, cells, graphs, strict=True)
        ]
        return self.dropout(at_least_float32(lifted[0] + lifted[1] + lifted[2]))
