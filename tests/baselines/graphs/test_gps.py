from __future__ import annotations

import torch
import torch_geometric.nn as pyg
from tests.baselines.graphs.small_models import edge_index, edge_kinds
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.gps import GPSLayer


def test_layer_against_pyg() -> None:
    batch = pack(MOLECULES)
    layer = scrambled(GPSLayer(6, 2))
    oracle = pyg.GPSConv(6, pyg.GINEConv(layer.local), heads=2).double()
    oracle.attn.in_proj_weight = layer.attention.project.weight
    oracle.attn.in_proj_bias = layer.attention.project.bias
    oracle.attn.out_proj.weight = layer.attention.out.weight
    oracle.attn.out_proj.bias = layer.attention.out.bias
    oracle.mlp[0], oracle.mlp[3] = layer.mlp[0], layer.mlp[3]
    for ours, theirs in (
        (layer.local_norm, oracle.norm1),
        (layer.attention_norm, oracle.norm2),
        (layer.norm, oracle.norm3),
    ):
        theirs.module.weight, theirs.module.bias = ours.weight, ours.bias
    nodes = random(len(batch.graph), 6).requires_grad_()
    kinds = random(len(batch.bond_table), 6, seed=1).requires_grad_()
    bonds = Bonds.of(batch, torch.float64)

    def plain() -> torch.Tensor:
        attributes = kinds[edge_kinds(batch)]
        return oracle(nodes, edge_index(batch), batch.graph, edge_attr=attributes)

    assert_twins(layer, lambda: layer(nodes, kinds, bonds), plain, nodes, kinds, atol=1e-10)
