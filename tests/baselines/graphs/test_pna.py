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


@pytest.mark.parametrize("towers", [1, 3])
def test_layer_against_pyg(towers: int) -> None:
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
        oracle.edge_encoder.load_state_dict(conv.bond.state_dict())
        oracle.lin.load_state_dict(conv.lin.state_dict())
        for ours, theirs in ((conv.pre, oracle.pre_nns), (conv.post, oracle.post_nns)):
            for tower, network in enumerate(theirs):
                network[0].weight.copy_(ours.weight[tower].T)
                network[0].bias.copy_(ours.bias[tower])
    inputs = [
        random(len(batch.graph), 6).requires_grad_(),
        random(len(batch.bond_table), 6, seed=1).requires_grad_(),
    ]
    nodes, kinds = inputs
    out = conv(nodes, kinds, Bonds.of(batch, torch.float64))
    expected = oracle(nodes, edge_index(batch), kinds[edge_kinds(batch)])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
    probe = random(*out.shape, seed=2)
    found = torch.autograd.grad((out * probe).sum(), [*inputs, conv.lin.weight])
    known = torch.autograd.grad((expected * probe).sum(), [*inputs, oracle.lin.weight])
    for gradient, theirs in zip(found, known, strict=True):
        torch.testing.assert_close(gradient, theirs, rtol=1e-7, atol=1e-8)


def test_atoms_that_are_alike() -> None:
    """Several messages are then the largest; PyTorch's amin and amax share the gradient."""
    batch, delta = pack(MOLECULES), 1.3
    conv = scrambled(PNAConv(6, 1, delta))
    with torch.no_grad():
        for parameter in conv.parameters():  # so that nothing is rounded
            parameter.copy_((8 * parameter).round() / 8)
    nodes = random(2, 6).round()[torch.arange(len(batch.graph)) % 2].requires_grad_()
    kinds = random(1, 6, seed=1).round().repeat(len(batch.bond_table), 1).requires_grad_()
    out = conv(nodes, kinds, Bonds.of(batch, torch.float64))
    source, target = edge_index(batch)
    bonds = torch.nn.functional.linear(kinds[edge_kinds(batch)], conv.bond.weight, conv.bond.bias)
    inputs = torch.cat([nodes[target], nodes[source], bonds], dim=1)
    messages = inputs @ conv.pre.weight[0] + conv.pre.bias[0]
    rows, degrees = [], []
    for node in range(len(nodes)):
        own = messages[target == node]
        degrees.append(max(len(own), 1))
        if not len(own):
            rows.append(torch.zeros(24, dtype=torch.float64))
            continue
        variance = own.var(dim=0, correction=0)
        std = variance.clamp_min(1e-5).sqrt().masked_fill(variance <= 1e-5, 0.0)
        rows.append(torch.cat([own.mean(dim=0), own.amin(dim=0), own.amax(dim=0), std]))
    statistics = torch.stack(rows)
    scale = (torch.tensor(degrees).double() + 1).log().unsqueeze(1) / delta
    whole = torch.cat([nodes, statistics, statistics * scale, statistics / scale], dim=1)
    expected = conv.lin(whole @ conv.post.weight[0] + conv.post.bias[0])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
    probe = random(*out.shape, seed=2)
    one, other = (torch.autograd.grad((x * probe).sum(), [nodes, kinds]) for x in (out, expected))
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)
