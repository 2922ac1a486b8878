from __future__ import annotations

import torch
from tests.baselines.graphs.small_models import model_of
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.dgn import DGNConv, direction


def fields() -> list[torch.Tensor]:
    """The gradient of each molecule's second eigenvector, n×n."""
    found = []
    for one in MOLECULES:
        joined = one.bonds.sum(dim=-1) > 0
        phi = one.vectors[:, min(1, len(one.nodes) - 1)]
        change = torch.where(joined, phi[None, :] - phi[:, None], 0.0)
        found.append(change / (change.abs().sum(dim=1, keepdim=True) + 1e-8))
    return found


def test_direction() -> None:
    batch = pack(MOLECULES, spare_nodes=2, spare_pairs=3)
    bonds = Bonds.of(batch, torch.float64)
    field = bonds.layout.pair_slots.gather(bonds.slots.scatter(direction(batch, bonds)))[:-3, 0]
    torch.testing.assert_close(field, torch.cat([part.flatten() for part in fields()]))


def test_layer_against_the_formula() -> None:
    batch = pack(MOLECULES)
    conv = scrambled(DGNConv(5))
    nodes = random(len(batch.graph), 5).requires_grad_()
    kinds = random(len(batch.bond_table), 5, seed=1).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)
    field = direction(batch, bonds)
    of_pairs = bonds.layout.pair_slots.gather(bonds.slots.scatter(field))

    def plain() -> torch.Tensor:
        rows = []
        for i in range(len(nodes)):
            mine = ((batch.target == i) & (batch.bond > 0)).nonzero()[:, 0].tolist()
            mean = average = slope = torch.zeros(5, dtype=torch.float64)
            for pair in mine:
                j, bond = batch.source[pair], batch.bond[pair]
                message = conv.target(nodes[i]) + conv.source(nodes[j]) + conv.bond(kinds[bond])
                mean = mean + message / len(mine)
                average = average + of_pairs[pair].abs() * message
                slope = slope + of_pairs[pair] * (message - nodes[i])
            rows.append(conv.post(torch.cat([nodes[i], mean, average, slope.abs()])))
        return torch.stack(rows)

    assert_twins(conv, lambda: conv(nodes, kinds, bonds, field), plain, nodes, kinds)


def test_signs_of_eigenvectors_do_not_matter() -> None:
    model = model_of("dgn").eval()
    flipped = [one._replace(vectors=-one.vectors) for one in MOLECULES]
    torch.testing.assert_close(model(pack(flipped)), model(pack(MOLECULES)), rtol=0, atol=1e-12)
