"""The convolution with bonds, against its literal twin and a plain sum."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled, state_of

from specformer import reference
from specformer.kernels.messages import filtered_sum
from specformer.nn.conv.graph_conv import GraphConv
from specformer.nn.conv.graph_pairs import GraphPairs

SIZES = [len(one.nodes) for one in MOLECULES]
PADDING = {"spare_nodes": 3, "spare_pairs": 7}


@pytest.mark.parametrize("padding", [{}, PADDING])
@pytest.mark.parametrize("training", [True, False])
def test_is_the_literal_one(padding, training: bool) -> None:
    conv = scrambled(GraphConv(6)).train(training)
    batch = pack(MOLECULES, **padding)
    layout = GraphPairs(batch, torch.float64)
    nodes = random(len(batch.nodes), 6).requires_grad_()
    kinds = random(len(batch.bond_table), 6, seed=1).requires_grad_()
    bases = random(len(batch.target), 6, seed=2).requires_grad_()
    rows, pairs = sum(SIZES), sum(n * n for n in SIZES)

    def by_molecule(x: torch.Tensor) -> list[torch.Tensor]:
        blocks = x[:pairs].split([n * n for n in SIZES])
        return [block.reshape(n, n, 6) for block, n in zip(blocks, SIZES, strict=True)]

    def plain() -> torch.Tensor:
        hidden = list(nodes[:rows].split(SIZES))
        bonds = by_molecule(kinds[batch.bond])
        arguments = (hidden, bonds, by_molecule(bases), training)
        return torch.cat(reference.graph_convolution(state_of(conv), *arguments))

    fast = lambda: conv(nodes, kinds, bases, layout)[:rows]  # noqa: E731
    assert_twins(conv, fast, plain, nodes, kinds, bases, atol=1e-10)


def test_filtered_sum_is_the_sum_over_pairs() -> None:
    batch = pack(MOLECULES[:2], spare_nodes=1, spare_pairs=3)
    layout = GraphPairs(batch, torch.float64)
    kinds = len(batch.bond_table)
    messages = random(len(batch.nodes) * kinds, 2).requires_grad_()
    bases = random(len(batch.target), 2, seed=1).requires_grad_()
    arguments = (layout.by_message, layout.by_target)
    out = filtered_sum(messages, bases, *arguments)
    expected = torch.zeros(len(batch.nodes), 2, dtype=torch.float64)
    for p in range(len(batch.target) - 3):
        row = batch.source[p] * kinds + batch.bond[p]
        expected[batch.target[p]] += messages[row].detach() * bases[p].detach()
    torch.testing.assert_close(out, expected)
    assert torch.autograd.gradcheck(lambda m, s: filtered_sum(m, s, *arguments), (messages, bases))


def test_padding_hands_nothing_to_anyone() -> None:
    batch = pack(MOLECULES, **PADDING)
    layout = GraphPairs(batch, torch.float64)
    messages = torch.ones(len(batch.nodes) * len(batch.bond_table), 2, dtype=torch.float64)
    bases = torch.ones(len(batch.target), 2, dtype=torch.float64).requires_grad_()
    out = filtered_sum(messages, bases, layout.by_message, layout.by_target)
    assert out[:, 0].tolist() == [float(n) for n in SIZES for _ in range(n)] + [0.0] * 3
    out.sum().backward()
    assert bases.grad is not None
    assert not bases.grad[-7:].any()


def test_dropout_only_in_training() -> None:
    conv = GraphConv(6, dropout=0.5).double()
    batch = pack(MOLECULES)
    layout = GraphPairs(batch, torch.float64)
    bases = random(len(batch.target), 6)
    arguments = (random(len(batch.nodes), 6), random(len(batch.bond_table), 6), bases, layout)
    assert not torch.equal(conv(*arguments), conv(*arguments))
    conv.eval()
    assert torch.equal(conv(*arguments), conv(*arguments))
