from __future__ import annotations

import pytest
import torch
from tests.baselines.graphs.small_models import edge_index, edge_kinds, model_of
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled
from torch.nn.functional import batch_norm

from specformer.baselines.graphs import GatedGCN
from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.gatedgcn import GatedGCNLayer, WalkEncoding


@pytest.mark.parametrize("placed", [False, True])
def test_layer_against_the_formula(placed: bool) -> None:
    """Bond by bond; in the order of the pairs, so that states can be compared."""
    batch = pack(MOLECULES)
    layer = scrambled(GatedGCNLayer(5, places=placed))
    nodes = random(len(batch.graph), 5).requires_grad_()
    places = random(len(batch.graph), 5, seed=2).requires_grad_() if placed else None
    kinds = random(len(batch.bond_table), 5, seed=1).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)
    sources, targets = edge_index(batch)

    def fast() -> torch.Tensor:
        after, states, moved = layer(nodes, bonds.bond_vectors(kinds), places, bonds)
        assert not states[len(sources) :].any()
        return torch.cat([after, states[: len(sources)], *([] if moved is None else [moved])])

    def plain() -> torch.Tensor:
        states = kinds[edge_kinds(batch)]
        ends = layer.ends(nodes)
        mixed = torch.stack(
            [
                layer.bond(state) + ends[i, :5] + ends[j, 5:]
                for state, i, j in zip(states, targets, sources, strict=True)
            ]
        )
        inputs = nodes if places is None else torch.cat([nodes, places], dim=-1)
        own, sent = layer.nodes(inputs).chunk(2, dim=-1)
        rows, moved = [], []
        for i in range(len(nodes)):
            gates = mixed[targets == i].sigmoid()
            gates = gates / (gates.sum(dim=0) + 1e-6)
            neighbours = sources[targets == i]
            rows.append(own[i] + (gates * sent[neighbours]).sum(dim=0))
            if places is not None:
                kept, passed = layer.places(places).chunk(2, dim=-1)
                total = (gates * passed[neighbours]).sum(dim=0)
                moved.append(places[i] + (kept[i] + total).tanh())
        node_norm, bond_norm = (
            batch_norm(x, None, None, norm.weight, norm.bias, training=True)
            for x, norm in ((torch.stack(rows), layer.node_norm), (mixed, layer.bond_norm))
        )
        found = [nodes + node_norm.relu(), states + bond_norm.relu()]
        return torch.cat([*found, *([torch.stack(moved)] if moved else [])])

    inputs = [nodes, kinds, *([] if places is None else [places])]
    assert_twins(layer, fast, plain, *inputs)


def test_places_end_centred_and_of_unit_norm() -> None:
    batch = pack(MOLECULES)
    module = scrambled(WalkEncoding(5, 3))
    nodes, places = random(len(batch.graph), 5), random(len(batch.graph), 5, seed=1)
    found = module.mixed(nodes, places, Bonds.of(batch, torch.float64))
    start = 0
    for one in MOLECULES:
        rows = slice(start, start := start + len(one.nodes))
        lowered = module.lower(places[rows])
        centred = lowered - lowered.mean(dim=0)
        unit = centred / (centred.square().sum(dim=0) + 1e-6).sqrt()
        expected = module.mix(torch.cat([nodes[rows], unit], dim=-1))
        torch.testing.assert_close(found[rows], expected, rtol=0, atol=1e-10)


def test_places_tell_rings_apart() -> None:
    """One ring of six and two of three: all nodes alike to the plain model."""
    ring = MOLECULES[1]
    bonds, alike = torch.zeros_like(ring.bonds), torch.zeros_like(ring.nodes)
    for start in (0, 3):
        for i in range(3):
            a, b = start + i, start + (i + 1) % 3
            bonds[a, b] = bonds[b, a] = 1
    one = ring._replace(nodes=alike, bonds=(ring.bonds > 0).long())
    two = ring._replace(nodes=alike, bonds=bonds)
    for steps, apart in ((None, False), (3, True)):
        model = model_of("gatedgcn", walk_steps=steps).eval()
        assert isinstance(model, GatedGCN)
        batches = pack([one]), pack([two])
        first, second = (model.pooled(each, Bonds.of(each, torch.float64)) for each in batches)
        assert ((first - second).abs().max() > 1e-3) == apart
