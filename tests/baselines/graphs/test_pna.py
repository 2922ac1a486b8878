from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from tests.baselines.graphs.small_models import edge_index, edge_kinds
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import scrambled

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.pna import PNAConv


@pytest.mark.parametrize("atoms", ["different", "alike"])
@pytest.mark.parametrize("towers", [1, 3])
def test_layer_against_pyg(towers: int, atoms: str) -> None:
    batch = pack(MOLECULES)
    histogram = torch.tensor([3, 20, 30, 9, 2])
    delta = (torch.arange(1, 6).log() * histogram).sum().item() / histogram.sum().item()
    conv = scrambled(PNAConv(6, towers, delta))
    oracle = pyg.PNAConv(
        6,
        6,
        ["mean", "min", "max", "std"],
        ["identity", "amplification", "attenuation"],
        histogram,
        edge_dim=6,
        towers=towers,
        divide_input=True,
    ).double()
    oracle.aggr_module.avg_deg_log.fill_(delta)  # kept in float32 by its constructor
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_((8 * parameter).round() / 8)
        oracle.edge_encoder.load_state_dict(conv.bond.state_dict())
        oracle.lin.load_state_dict(conv.lin.state_dict())
        for ours, theirs in ((conv.pre, oracle.pre_nns), (conv.post, oracle.post_nns)):
            for tower, network in enumerate(theirs):
                network[0].weight.copy_(ours.weight[tower].T)
                network[0].bias.copy_(ours.bias[tower])
    nodes, kinds = random(len(batch.graph), 6), random(len(batch.bond_table), 6, seed=1)
    if atoms == "alike":  # so that several messages are the largest, without rounding
        nodes = nodes[torch.arange(len(nodes)) % 2].round()
        kinds = kinds[:1].round().repeat(len(kinds), 1)
    inputs = [nodes.requires_grad_(), kinds.requires_grad_()]
    out = conv(nodes, kinds, Bonds.of(batch, torch.float64))
    expected = oracle(nodes, edge_index(batch), kinds[edge_kinds(batch)])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
    probe = random(*out.shape, seed=2)
    found = torch.autograd.grad((out * probe).sum(), [*inputs, conv.lin.weight])
    known = torch.autograd.grad((expected * probe).sum(), [*inputs, oracle.lin.weight])
    for gradient, theirs in zip(found, known, strict=True):
        torch.testing.assert_close(gradient, theirs, rtol=1e-7, atol=1e-8)
