"""Bonds of a batch one after another, against loops over its pairs."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from tests.baselines.graphs.small_models import listed_bonds
from tests.drawn import random
from tests.nn.molecules import MOLECULES, molecule, pack

from specformer.baselines.graphs.parts.bond_list import BondList

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
    at_ends, of_kinds = bonds.at_ends(nodes), bonds.of_kinds(kinds)
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
