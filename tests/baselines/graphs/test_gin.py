"""GIN, GSN and GIN-AK+, layer by layer, against PyG and NetworkX."""

from __future__ import annotations

import networkx as nx
import torch
from tests.baselines.graphs.small_models import edge_index, edge_kinds, gine_of, model_of
from tests.drawn import random
from tests.nn.molecules import MAX_RING, MOLECULES, molecule, pack, rings_of
from tests.nn.plain_twin import assert_twins, scrambled
from torch.nn.functional import batch_norm

from specformer.baselines.graphs.bonds import Bonds, Rings
from specformer.baselines.graphs.gin import (
    GINAKLayer,
    GINLayer,
    GSNLayer,
    Neighbourhoods,
    ring_numbers,
)


def test_gin_against_pyg() -> None:
    batch = pack(MOLECULES)
    layer = scrambled(GINLayer(5))
    oracle = gine_of(layer)
    x = random(len(batch.graph), 5).requires_grad_()
    kinds = random(len(batch.bond_table), 5, seed=1).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)

    def plain() -> torch.Tensor:
        return oracle(x, edge_index(batch), kinds[edge_kinds(batch)])

    assert_twins(layer, lambda: layer(x, kinds, bonds), plain, x, kinds)


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


HOPS = 2


def test_layer_against_ego_graphs() -> None:
    """NetworkX cuts out the surroundings; each is a graph of its own."""
    batch = pack([*MOLECULES, molecule(nx.barbell_graph(3, 2), seed=9)])
    layer = scrambled(GINAKLayer(4, HOPS))
    nodes = random(len(batch.graph), 4).requires_grad_()
    kinds = random(len(batch.bond_table), 4, seed=1).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)
    around = Neighbourhoods.of(bonds, HOPS)
    whole = nx.Graph()
    whole.add_nodes_from(range(len(nodes)))
    for i, j, bond in zip(
        batch.target.tolist(), batch.source.tolist(), batch.bond.tolist(), strict=True
    ):
        if bond:
            whole.add_edge(i, j, bond=bond)

    def plain() -> torch.Tensor:
        places, inputs = {}, []
        for i in whole:
            ego = nx.ego_graph(whole, i, radius=HOPS)
            for j in ego:
                total = (1 + layer.update.epsilon) * nodes[j]
                for k, data in ego[j].items():
                    total = total + (nodes[k] + kinds[data["bond"]]).relu()
                places[i, j] = len(inputs)
                inputs.append(total)
        norm = layer.update.norm
        hidden = layer.update.first(torch.stack(inputs))
        hidden = batch_norm(hidden, None, None, norm.weight, norm.bias, training=True)
        states = layer.update.second(hidden.relu())
        lengths = dict(nx.all_pairs_shortest_path_length(whole, cutoff=HOPS))
        rows = []
        for i in whole:
            near = [(states[places[i, j]], states[places[j, i]], lengths[i][j]) for j in lengths[i]]
            within = [z * layer.within.weight[:, length].sigmoid() for z, _, length in near]
            among = [z * layer.among.weight[:, length].sigmoid() for _, z, length in near]
            means = [torch.stack(part).mean(dim=0) for part in (within, among)]
            rows.append(layer.fuse(torch.cat([states[places[i, i]], *means])))
        return torch.stack(rows)

    def fast() -> torch.Tensor:
        return layer(nodes, kinds, bonds, around)

    assert_twins(layer, fast, plain, nodes, kinds, atol=1e-10)
