from __future__ import annotations

import networkx as nx
import torch
from tests.baselines.graphs.small_models import edge_index, edge_kinds, gine_of, model_of
from tests.drawn import random
from tests.nn.molecules import MAX_RING, MOLECULES, molecule, pack, rings_of
from tests.nn.plain_twin import assert_twins, scrambled

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.gsn import GSNLayer, ring_numbers
from specformer.baselines.graphs.rings import Rings

CAGES = [*MOLECULES, molecule(nx.hypercube_graph(3), seed=7), molecule(nx.complete_graph(7))]


def numbers_of_bonds() -> list[list[int]]:
    """A line a bond and direction, in the order of pairs: its rings of 3, 4, … atoms."""
    lines = []
    for one in CAGES:
        rings = [[atom for atom in ring if atom >= 0] for ring in rings_of(one)]
        sides = [{frozenset((ring[at - 1], ring[at])) for at in range(len(ring))} for ring in rings]
        for i, j in (one.bonds > 0).any(dim=-1).nonzero().tolist():
            line = [0] * (MAX_RING - 2)
            for side in sides:
                line[len(side) - 3] += {i, j} in side
            lines.append(line)
    return lines


def test_layer_against_pyg_with_rings_as_features_of_bonds() -> None:
    batch = pack(CAGES)
    layer = scrambled(GSNLayer(5, MAX_RING - 2))
    oracle = gine_of(layer)
    x = random(len(batch.graph), 5).requires_grad_()
    kinds = random(len(batch.bond_table), 5, seed=1).requires_grad_()
    rings = Rings.of(batch, MAX_RING, torch.float64)
    numbers, bonds = ring_numbers(rings), Bonds.of(batch, torch.float64)
    counted = torch.tensor(numbers_of_bonds()).clamp_max(4)
    assert counted.unique().tolist() == [0, 1, 2, 4]  # a bond of K7 is in five triangles

    def plain() -> torch.Tensor:
        tables = layer.rings.weight.T.unflatten(0, (-1, 5))  # length, number, channel
        of_rings = sum(table[column] for table, column in zip(tables, counted.T, strict=True))
        return oracle(x, edge_index(batch), kinds[edge_kinds(batch)] + of_rings)

    def fast() -> torch.Tensor:
        return layer(x, kinds, bonds, rings.bonds, numbers)

    assert_twins(layer, fast, plain, x, kinds)


def test_rings_tell_apart_what_messages_alone_cannot() -> None:
    """One ring of six atoms and two of three: the same to GIN."""
    six, twice = (
        molecule(graph)
        for graph in (nx.cycle_graph(6), nx.disjoint_union(*[nx.cycle_graph(3)] * 2))
    )
    same = torch.zeros_like(six.nodes)
    batch = pack([one._replace(nodes=same, bonds=(one.bonds > 0).long()) for one in (six, twice)])
    gin, gsn = (model_of(name).eval()(batch) for name in ("gin", "gsn"))
    torch.testing.assert_close(gin[0], gin[1], rtol=0, atol=1e-12)
    assert (gsn[0] - gsn[1]).abs().max() > 1e-3
