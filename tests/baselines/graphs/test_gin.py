from __future__ import annotations

import torch
from tests.baselines.graphs.small_models import edge_index, edge_kinds, gine_of
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.gin import GINLayer


def test_layer_against_pyg() -> None:
    batch = pack(MOLECULES)
    layer = scrambled(GINLayer(5))
    oracle = gine_of(layer)
    x = random(len(batch.graph), 5).requires_grad_()
    kinds = random(len(batch.bond_table), 5, seed=1).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)

    def plain() -> torch.Tensor:
        return oracle(x, edge_index(batch), kinds[edge_kinds(batch)])

    assert_twins(layer, lambda: layer(x, kinds, bonds), plain, x, kinds)
