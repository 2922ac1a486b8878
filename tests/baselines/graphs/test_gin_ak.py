from __future__ import annotations

import networkx as nx
import torch
from tests.drawn import random
from tests.nn.molecules import MOLECULES, molecule, pack
from tests.nn.plain_twin import assert_twins, scrambled
from torch.nn.functional import batch_norm

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.gin_ak import GINAKLayer, Surroundings

HOPS = 2


def test_layer_against_ego_graphs() -> None:
    """NetworkX cuts out the surroundings; each is a graph of its own."""
    batch = pack([*MOLECULES, molecule(nx.barbell_graph(3, 2), seed=9)])
    layer = scrambled(GINAKLayer(4, HOPS))
    nodes = random(len(batch.graph), 4).requires_grad_()
    kinds = random(len(batch.bond_table), 4, seed=1).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)
    around = Surroundings.of(bonds, HOPS)
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
