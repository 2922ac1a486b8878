"""Bonds and rings of a batch one after another, against loops over each molecule."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest
import torch
from tests.baselines.graphs.small_models import listed_bonds, model_of
from tests.drawn import random
from tests.nn.molecules import MAX_RING, MOLECULES, molecule, pack, rings_of
from torch import Tensor

from specformer.baselines.graphs.bonds import BondList, Rings
from specformer.errors import ConfigError
from specformer.spectrum.many.packed_graphs import PackedGraphs

GRAPHS = [*MOLECULES, molecule(nx.hypercube_graph(3), seed=12)]
PADDING = {"spare_nodes": 3, "spare_pairs": 9, "spare_bonds": 2, "spare_graphs": 1}


@pytest.mark.parametrize("padding", [{}, PADDING])
def test_bonds_one_after_another(padding: dict[str, int]) -> None:
    batch = pack(GRAPHS, **padding)
    bonds, expected = BondList.of(batch, torch.float64), listed_bonds(batch)
    nodes, kinds = random(len(batch.nodes), 3), random(len(batch.bond_table), 3, seed=1)
    assert int(bonds.counted.number) == len(expected)
    assert bonds.counted.share.flatten().tolist() == [
        float(row < len(expected)) for row in range(batch.num_bonds)
    ]
    at_ends, of_kinds = bonds.at_ends(nodes), bonds.bond_vectors(kinds)
    messages = random(2, batch.num_bonds, 3, seed=2)
    summed = torch.zeros_like(nodes)
    for row, bond in enumerate(expected):
        high, low = max(bond), min(bond)
        torch.testing.assert_close(at_ends[:, row], nodes[[high, low]])
        (pair,) = ((batch.target == high) & (batch.source == low)).nonzero().flatten().tolist()
        torch.testing.assert_close(of_kinds[row], kinds[batch.bond[pair]])
        assert int(bonds.row[pair]) == row
        summed[high] += messages[0, row]
        summed[low] += messages[1, row]
    assert not at_ends[:, len(expected) :].any()
    assert not of_kinds[len(expected) :].any()
    torch.testing.assert_close(bonds.to_ends(messages), summed)
    counts = bonds.by_graph.sum(torch.ones(batch.num_bonds, 1))
    assert counts.flatten().tolist()[: len(GRAPHS)] == [
        float((one.bonds > 0).any(dim=-1).sum()) / 2 for one in GRAPHS
    ]
    assert not counts[len(GRAPHS) :].any()


def test_a_loop_is_no_bond() -> None:
    loop = nx.path_graph(3)
    loop.add_edge(1, 1)
    assert int(BondList.of(pack([molecule(loop)]), torch.float64).counted.number) == 2


#: Two fused rings, a cage, a fan of triangles, and no ring at all.
CAGES = [
    molecule(nx.compose(nx.cycle_graph(6), nx.Graph([(0, 6), (6, 7), (7, 8), (8, 1)])), seed=11),
    molecule(nx.hypercube_graph(3), seed=12),
    MOLECULES[0],
    molecule(nx.wheel_graph(5), seed=13),
]


def literal() -> list[list[int]]:
    """Rows of the atoms of each ring, in the order of its bonds."""
    rows, first = [], 0
    for one in [*MOLECULES, *CAGES]:
        rows += [[first + atom for atom in ring if atom >= 0] for ring in rings_of(one)]
        first += len(one.nodes)
    return rows


def bonds_of(ring: list[int]) -> list[frozenset[int]]:
    return [frozenset((atom, ring[(at + 1) % len(ring)])) for at, atom in enumerate(ring)]


SPARE = {"spare_nodes": 3, "spare_pairs": 9, "spare_bonds": 2, "spare_rings": 4}


@pytest.fixture(scope="module", params=[{}, SPARE])
def batch(request: pytest.FixtureRequest) -> PackedGraphs:
    return pack([*MOLECULES, *CAGES], **request.param)


def test_sums_over_atoms_and_over_bonds(batch: PackedGraphs) -> None:
    rings = Rings.of(batch, MAX_RING, torch.float64)
    nodes, bonds = random(len(batch.nodes), 3), random(batch.num_bonds, 3, seed=1)
    expected, rows = literal(), listed_bonds(batch)
    assert rings.length[: len(expected)].tolist() == [len(ring) for ring in expected]
    assert not rings.length[len(expected) :].any()
    of_atoms, at_bonds = rings.of_atoms(nodes), rings.at_bonds(bonds)
    for number, ring in enumerate(expected):
        torch.testing.assert_close(of_atoms[number], nodes[ring].sum(dim=0))
        own = [rows.index(bond) for bond in bonds_of(ring)]
        torch.testing.assert_close(at_bonds[number, : len(ring)], bonds[own])
    assert not (at_bonds * (1 - rings.used)).any()


def test_back_to_bonds(batch: PackedGraphs) -> None:
    rings, rows = Rings.of(batch, MAX_RING, torch.float64), listed_bonds(batch)
    places = random(*rings.used.shape[:2], 3)
    expected = torch.zeros(batch.num_bonds, 3, dtype=torch.float64)
    counts = torch.zeros(batch.num_bonds, MAX_RING - 2, dtype=torch.float64)
    for number, ring in enumerate(literal()):
        for at, bond in enumerate(bonds_of(ring)):
            expected[rows.index(bond)] += places[number, at]
            counts[rows.index(bond), len(ring) - 3] += 1
    torch.testing.assert_close(rings.to_bonds(places), expected)
    assert torch.equal(rings.counts(), counts)


def test_rings_by_graph(batch: PackedGraphs) -> None:
    rings = Rings.of(batch, MAX_RING, torch.float64)
    found: Tensor = rings.by_graph.sum(rings.length.double().unsqueeze(1))
    expected = [
        sum(atom >= 0 for ring in rings_of(one) for atom in ring) for one in [*MOLECULES, *CAGES]
    ]
    assert found.flatten().tolist() == expected
    assert int(rings.counted.number) == len(literal())


def test_batches_without_their_rings_are_refused(batch: PackedGraphs) -> None:
    with pytest.raises(ConfigError, match=r"rings of up to 6 atoms, .* with max_ring=8"):
        model_of("gsn", max_ring=8)(batch)
    with pytest.raises(ConfigError, match=r"has no rings, .* with max_ring=6"):
        model_of("gsn")(replace(batch, rings=None))
