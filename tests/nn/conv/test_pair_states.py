"""The update of pair states and its parts, against plain indexing."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack

from specformer.nn.conv.graph_conv import GraphPairs
from specformer.nn.conv.pair_states import bond_vectors, diagonal_rows, gate_pairs

BATCH = pack(MOLECULES, spare_nodes=3, spare_pairs=20)
PAIRS = GraphPairs(BATCH, torch.float64)


def test_gated() -> None:
    ends = random(len(BATCH.nodes), 6).requires_grad_()
    own = random(len(BATCH.bond), 6, seed=1).requires_grad_()
    real = BATCH.pair_mask.unsqueeze(1)
    to, of = ends[BATCH.target, :3], ends[BATCH.source, 3:]
    product = (to + of) * own[:, :3]
    expected = (product / (1 + product.abs()).sqrt() + own[:, 3:]) * real
    found = gate_pairs(ends, own, PAIRS) * real
    torch.testing.assert_close(found, expected)
    probe = random(*found.shape, seed=2)
    gradients = [torch.autograd.grad((x * probe).sum(), (ends, own)) for x in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_every_pair_has_its_own_of_values_by_kind() -> None:
    kinds = random(len(BATCH.bond_table), 4).requires_grad_()
    measured = GraphPairs(replace(BATCH, bond_x=torch.zeros(len(kinds), 1)), torch.float64)
    probe = random(len(BATCH.bond), 4, seed=1)
    expected = torch.autograd.grad((kinds[BATCH.bond] * probe).sum(), kinds)[0]
    for pairs in (PAIRS, measured):
        found = bond_vectors(kinds, pairs)
        torch.testing.assert_close(found, kinds[BATCH.bond])
        torch.testing.assert_close(torch.autograd.grad((found * probe).sum(), kinds)[0], expected)


def test_rows_of_nodes_are_those_of_the_diagonal() -> None:
    features = random(len(BATCH.bond), 2)
    found = diagonal_rows(features, PAIRS)
    diagonal = features[(BATCH.target == BATCH.source) & BATCH.pair_mask]
    assert torch.equal(found[BATCH.node_mask], diagonal)
