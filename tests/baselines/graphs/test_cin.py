from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
import torch
from tests.baselines.graphs.small_models import fresh, model_of
from tests.drawn import random
from tests.nn.molecules import MAX_RING, MOLECULES, molecule, pack, rings_of
from tests.nn.plain_twin import assert_twins, scrambled
from torch import Tensor
from torch.nn.functional import batch_norm

from specformer.baselines.graphs.bonds import Rings
from specformer.baselines.graphs.cin import CIN, CellLayer, Cells, CellUpdate, CINLayer
from specformer.kernels.norms import CountedRows
from specformer.spectrum.many.packed_graphs import PackedGraphs

#: Fused rings and a cage besides the usual ones.
CAGES = [
    *MOLECULES,
    molecule(nx.compose(nx.cycle_graph(5), nx.Graph([(0, 5), (5, 6), (6, 1)])), seed=11),
    molecule(nx.hypercube_graph(3), seed=12),
]
#: Cells by name: an atom's row, a bond's two, a ring's number.
States = dict[Any, Tensor]


class Complex:
    """The cells of a batch, and which of them bound which."""

    def __init__(self) -> None:
        self.graph_of: list[dict[Any, int]] = [{}, {}, {}]  # by dimension
        self.bounds: dict[Any, list[Any]] = {}
        self.kinds: dict[Any, tuple[int, ...]] = {}
        self.atoms_of: dict[Any, list[int]] = {}
        first = 0
        for graph, one in enumerate(CAGES):
            for atom in range(len(one.nodes)):
                self.graph_of[0][first + atom] = graph
                self.bounds[first + atom] = []
            for i, j in (one.bonds > 0).any(dim=-1).triu().nonzero().tolist():
                bond = frozenset((first + i, first + j))
                self.graph_of[1][bond] = graph
                self.bounds[bond] = [first + i, first + j]
                self.kinds[bond] = tuple(one.bonds[i, j].tolist())
            for ring in rings_of(one):
                number = ("ring", len(self.graph_of[2]))
                atoms = [first + atom for atom in ring if atom >= 0]
                self.graph_of[2][number] = graph
                self.atoms_of[number] = atoms
                self.bounds[number] = [
                    frozenset((atoms[at - 1], atoms[at])) for at in range(len(atoms))
                ]
            first += len(one.nodes)

    def states(self, batch: PackedGraphs, atoms: Tensor, kinds: Tensor, rings: Tensor) -> States:
        table = [tuple(row) for row in batch.bond_table.tolist()]
        return {
            **{atom: atoms[atom] for atom in self.graph_of[0]},
            **{bond: kinds[table.index(self.kinds[bond])] for bond in self.graph_of[1]},
            **{ring: rings[ring[1]] for ring in self.graph_of[2]},
        }


def layer_by_loops(layer: CellLayer, rows: Tensor) -> Tensor:
    weights = (layer.norm.weight, layer.norm.bias)
    return batch_norm(layer.linear(rows), None, None, *weights, training=True).relu()


def update_by_loops(update: CellUpdate, own: Tensor, messages: list[Tensor]) -> Tensor:
    parts = []
    for number, message in enumerate(messages):
        rows = (1 + update.epsilons[number]) * own + message
        for layer in (update.first[number], update.second[number]):
            rows = layer_by_loops(layer, rows)
        parts.append(rows)
    return layer_by_loops(update.both, torch.cat(parts, dim=1))


def by_loops(layer: CINLayer, states: States, cells: Complex) -> States:
    """Every message by itself, cell by cell."""
    maps = [
        (layer.from_atoms.weight, layer.through_bonds),
        (layer.from_bonds.weight, layer.through_rings),
    ]
    out: States = {}
    for dimension, update in enumerate((layer.atoms, layer.bonds, layer.rings)):
        names = list(cells.graph_of[dimension])
        of_bounds, of_upper = [], []
        for cell in names:
            zero = torch.zeros_like(states[cell])
            of_bounds.append(sum((states[other] for other in cells.bounds[cell]), zero))
            total = zero
            if dimension < 2:
                sender, through = maps[dimension]
                for larger in cells.graph_of[dimension + 1]:
                    if cell in cells.bounds[larger]:
                        for other in cells.bounds[larger]:
                            if other != cell:
                                joined = torch.cat([states[other], states[larger]])
                                weight = torch.cat([sender, through.weight], dim=1)
                                total = total + (weight @ joined + through.bias).relu()
            of_upper.append(total)
        own = torch.stack([states[cell] for cell in names])
        rows = update_by_loops(update, own, [torch.stack(of_bounds), torch.stack(of_upper)])
        out |= dict(zip(names, rows, strict=True))
    return out


PADDING = {"spare_nodes": 2, "spare_pairs": 7, "spare_bonds": 2, "spare_rings": 3}


@pytest.mark.parametrize("padding", [{}, PADDING])
def test_layer_against_loops_over_cells(padding: dict[str, int]) -> None:
    batch, cells = pack(CAGES, **padding), Complex()
    layer = scrambled(CINLayer(4))
    rings = Rings.of(batch, MAX_RING, torch.float64)
    nodes = CountedRows.of(batch.node_mask, torch.float64)
    atoms = random(len(batch.nodes), 4).requires_grad_()
    kinds = random(len(batch.bond_table), 4, seed=1).requires_grad_()
    faces = random(len(rings.length), 4, seed=2).requires_grad_()
    numbers = [len(names) for names in cells.graph_of]
    # A bond comes with its later end: (0, 2) before (1, 2), and both before (0, 3).
    bonds = sorted(cells.graph_of[1], key=lambda bond: (max(bond), min(bond)))

    def fast() -> Tensor:
        faces_there = faces * rings.counted.share
        found = layer(Cells(atoms, rings.bonds.bond_vectors(kinds), faces_there), rings, nodes)
        for states, number in zip(found, numbers, strict=True):
            assert not states[number:].any()
        return torch.cat([states[:number] for states, number in zip(found, numbers, strict=True)])

    def plain() -> Tensor:
        out = by_loops(layer, cells.states(batch, atoms, kinds, faces), cells)
        names = [*cells.graph_of[0], *bonds, *cells.graph_of[2]]
        return torch.stack([out[cell] for cell in names])

    assert_twins(layer, fast, plain, atoms, kinds, faces, atol=1e-10)


@pytest.mark.parametrize("pooling", ["mean", "sum", "max"])
def test_model_against_loops(pooling: str) -> None:
    batch, cells = pack(CAGES), Complex()
    model = model_of("cin", pooling=pooling)
    assert isinstance(model, CIN)
    pool = {
        "mean": lambda rows: rows.mean(dim=0),
        "sum": lambda rows: rows.sum(dim=0),
        "max": lambda rows: rows.amax(dim=0),
    }[pooling]

    def plain() -> Tensor:
        atoms, kinds = model.atoms(batch), model.bonds(batch.bond_table)
        faces = torch.stack([atoms[own].sum(dim=0) for own in cells.atoms_of.values()])
        states = cells.states(batch, atoms, kinds, faces)
        for layer in model.layers:
            states = by_loops(layer, states, cells)
        outputs = []
        for graph in range(len(CAGES)):
            total = torch.zeros(16, dtype=torch.float64)
            for lift, names in zip(model.lifts, cells.graph_of, strict=True):
                own = [states[cell] for cell, of in names.items() if of == graph]
                pooled = pool(torch.stack(own)) if own else torch.zeros(8).double()
                total = total + lift(pooled).relu()
            outputs.append(model.readout(total))
        return torch.stack(outputs)

    assert_twins(model, lambda: model(batch), plain, atol=1e-9)


def test_rings_tell_apart_what_messages_alone_cannot() -> None:
    """Two fused rings of six atoms, and two of five joined by a bond: the same to GIN."""
    fused = nx.compose(nx.cycle_graph(6), nx.Graph([(0, 6), (6, 7), (7, 8), (8, 9), (9, 1)]))
    joined = nx.disjoint_union(nx.cycle_graph(5), nx.cycle_graph(5))
    joined.add_edge(0, 5)
    pair = [molecule(graph) for graph in (fused, joined)]
    batch = pack(
        [
            one._replace(nodes=torch.zeros_like(one.nodes), bonds=(one.bonds > 0).long())
            for one in pair
        ]
    )
    gin, cin = (fresh(name).double().eval()(batch) for name in ("gin", "cin"))
    torch.testing.assert_close(gin[0], gin[1], rtol=0, atol=1e-12)
    assert (cin[0] - cin[1]).abs().max() > 1e-4


def test_batches_without_rings_leave_the_statistics_of_rings() -> None:
    model = model_of("cin").train()
    model(pack(CAGES))
    before = {name: tensor.clone() for name, tensor in model.named_buffers()}
    model(pack([molecule(nx.path_graph(n)) for n in (4, 6)])).sum().backward()
    for name, tensor in model.named_buffers():
        if "running" in name:
            assert torch.equal(tensor, before[name]) == (".rings." in name), name
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
