"""The convolution with bonds, against its literal twin and a plain sum."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import assert_twins, scrambled, state_of

from specformer import reference
from specformer.kernels.segments import filtered_sum
from specformer.nn.conv.graph_conv import GraphBases, GraphConv, GraphPairs, basis_entries

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


ALL_PADDING = {"spare_nodes": 4, "spare_pairs": 9, "spare_graphs": 1, "max_nodes": 8}


def layout_of(**padding: int) -> GraphPairs:
    return GraphPairs(pack(MOLECULES, **padding), torch.float64)


def response_of(layout: GraphPairs) -> torch.Tensor:
    """New eigenvalues λ² and 1 − λ: known matrices, L² and I − L."""
    values = layout.tokens.values
    return torch.stack([values.square(), 1.0 - values], dim=-1)


@pytest.mark.parametrize("padding", [{}, ALL_PADDING])
def test_spectra_lie_in_padded_squares(padding) -> None:
    layout = layout_of(**padding)
    for number, one in enumerate(MOLECULES):
        n = len(one.nodes)
        torch.testing.assert_close(layout.tokens.values[number, :n], one.eigenvalues)
        torch.testing.assert_close(layout.vectors[number, :n, :n], one.vectors)
        assert layout.tokens.weights[number].tolist() == [1.0] * n + [0.0] * (
            layout.tokens.weights.shape[1] - n
        )
        assert not layout.vectors[number, n:].any()
        assert not layout.vectors[number, :, n:].any()


def test_a_graph_without_nodes_still_has_tokens_to_attend_to() -> None:
    assert layout_of(**ALL_PADDING).tokens.weights[-1].tolist() == [1.0] * 8


@pytest.mark.parametrize("padding", [{}, ALL_PADDING])
def test_entries_are_those_of_the_filtered_laplacian(padding) -> None:
    layout = layout_of(**padding)
    entries = basis_entries(response_of(layout), layout)
    start = 0
    for one in MOLECULES:
        n = len(one.nodes)
        identity = torch.eye(n, dtype=torch.float64)
        laplacian = one.vectors @ torch.diag(one.eigenvalues) @ one.vectors.T
        expected = torch.stack([identity, laplacian @ laplacian, identity - laplacian], dim=-1)
        pairs = entries[start : start + n * n].reshape(n, n, 3)
        torch.testing.assert_close(pairs, expected, rtol=0, atol=1e-12)
        start += n * n
    assert not entries[start:, 1:].any()


def test_gradient_reaches_the_response_of_every_token_and_of_no_padding() -> None:
    layout = layout_of(**ALL_PADDING)
    response = response_of(layout).requires_grad_()
    (basis_entries(response, layout) ** 2).sum().backward()
    assert response.grad is not None
    for number, size in enumerate([*SIZES, 0]):
        assert response.grad[number, :size].any(dim=-1).all()
        assert not response.grad[number, size:].any()


@pytest.mark.parametrize("norm", [None, "batch"])
@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("normalise", [None, "softmax"])
@pytest.mark.parametrize("training", [True, False])
def test_network_is_the_literal_one(norm, activation, normalise, training: bool) -> None:
    bases = scrambled(
        GraphBases(2, 6, norm=norm, activation=activation, normalise=normalise)
    ).train(training)
    config = {"bases_norm": norm, "bases_activation": activation, "normalise_bases": normalise}
    layout = layout_of(**ALL_PADDING)
    pairs = sum(n * n for n in SIZES)
    entries = random(pairs + ALL_PADDING["spare_pairs"], 3).requires_grad_()

    def plain() -> torch.Tensor:
        blocks = entries[:pairs].split([n * n for n in SIZES])
        raw = [block.reshape(n, n, 3) for block, n in zip(blocks, SIZES, strict=True)]
        out = reference.combined_graph_bases(state_of(bases), raw, config, training)
        return torch.cat([x.flatten(0, 1) for x in out])

    assert_twins(bases, lambda: bases(entries, layout)[:pairs], plain, entries, atol=1e-10)


def test_dropout_acts_before_the_shares_and_only_in_training() -> None:
    layout = layout_of(**ALL_PADDING)
    bases = GraphBases(2, 6, dropout=0.5, normalise="softmax").double()
    entries = random(len(layout.batch.target), 3)
    first, second = bases(entries, layout), bases(entries, layout)
    assert not torch.equal(first, second)
    ones = torch.ones(sum(SIZES), 6, dtype=torch.float64)
    torch.testing.assert_close(layout.by_target.sum(first)[: len(ones)], ones)
    bases.eval()
    assert torch.equal(bases(entries, layout), bases(entries, layout))
