"""Attention over weighted tokens equals attention over all tokens (property 4); condensation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawn import random
from tests.nn.plain_twin import BOTH_DTYPES, assert_twins, scrambled, state_of

from specformer import reference
from specformer.errors import ConfigError
from specformer.kernels.weighted_attention import carried_attention, masked_attention
from specformer.nn.condensation import (
    attention_matrix,
)
from specformer.nn.filter import MultiHeadAttention, WeightedAttention


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_heads_are_the_literal_ones(num_heads: int) -> None:
    module = scrambled(WeightedAttention(8, num_heads))
    z = random(5, 8).requires_grad_()
    ones = torch.ones(5, dtype=torch.float64)
    assert_twins(
        module,
        lambda: module.heads(z, z, ones),
        lambda: torch.stack(reference.attention_heads(state_of(module), z, num_heads)),
        z,
    )
    matrices = [
        reference.attention_matrix(state_of(module), z, m, num_heads) for m in range(num_heads)
    ]
    torch.testing.assert_close(attention_matrix(module, z, z, ones), torch.stack(matrices))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=7), st.sampled_from(BOTH_DTYPES))
@settings(max_examples=40, deadline=None)
def test_a_weight_is_a_multiplicity(counts: list[int], dtype: torch.dtype) -> None:
    module = scrambled(WeightedAttention(8, 2)).to(dtype)
    distinct = random(len(counts), 8, dtype=dtype)
    index = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    everything = distinct[index]
    with torch.no_grad():
        few = module.heads(distinct, distinct, torch.tensor(counts, dtype=dtype))
        many = module.heads(everything, everything, torch.ones(len(index), dtype=dtype))
    atol = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(few[:, index], many, rtol=0, atol=atol)


def test_weights_may_be_tiny_or_fractional() -> None:
    module = scrambled(WeightedAttention(8, 2))
    z = random(4, 8)
    weights = torch.tensor([1e-25, 0.5, 2.5, 1000.0], dtype=torch.float64)
    matrix = attention_matrix(module, z, z, weights)
    torch.testing.assert_close(matrix.sum(dim=-1), torch.ones(2, 4, dtype=torch.float64))
    plain = attention_matrix(module, z, z, torch.ones(4, dtype=torch.float64)) * weights
    torch.testing.assert_close(matrix, plain / plain.sum(dim=-1, keepdim=True))
    assert torch.isfinite(module.heads(z, z, weights)).all()


def test_keys_may_be_other_tokens() -> None:
    module = scrambled(MultiHeadAttention(8, 2))
    out = module(random(5, 8), random(3, 8, seed=2), torch.ones(3, dtype=torch.float64))
    assert out.shape == (5, 8)


@pytest.mark.parametrize("num_heads", [0, -1, 3])
def test_uneven_heads_are_refused(num_heads: int) -> None:
    message = f"hidden_channels=8 cannot be split evenly over num_heads={num_heads}"
    with pytest.raises(ConfigError, match=message):
        WeightedAttention(8, num_heads)


def test_repr() -> None:
    assert repr(WeightedAttention(8, 2)).startswith("WeightedAttention(\n  8, num_heads=2")


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize("apart", [False, True], ids=["own keys", "other keys"])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_both_ways_to_weight_keys_agree(lead: tuple[int, ...], apart: bool, dtype: torch.dtype):
    torch.manual_seed(0)
    shapes = [(*lead, 7, 1, 3, 5), (*lead, 11, 2, 3, 5)] if apart else [(*lead, 11, 3, 3, 5)]
    packed = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    weights = torch.arange(1, 12, dtype=dtype)
    operands = [part.transpose(-2, -3) for each in packed for part in each.unbind(-3)]
    masked = masked_attention(*operands, weights.log(), 0.3)
    for _ in range(2):  # with what the first call left, too
        carried = carried_attention(packed, weights, 0.3, dtype)
        torch.testing.assert_close(carried, masked)
        gradients = [
            torch.autograd.grad(out.square().sum(), packed, retain_graph=True)
            for out in (carried, masked)
        ]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)


def test_bfloat16_keeps_multiplicities() -> None:
    """Queries of zero leave nothing but the weights, whose logarithms bfloat16 cannot hold."""
    weights = torch.tensor([1.0, 1000.0, 3.0])
    packed = torch.zeros(1, 3, 3, 2, 4)
    packed[:, :, 2, :, 0] = torch.eye(3)[0, :, None]  # values: the first key's share
    out = carried_attention([packed], weights, 0.5, torch.bfloat16)
    torch.testing.assert_close(out[..., 0], torch.full((1, 2, 3), 1 / 1004.0), rtol=2**-7, atol=0)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_scores_are_never_held(lead: tuple[int, ...]) -> None:
    """The fused kernel runs, with and without a run axis, forward and backward."""
    module = MultiHeadAttention(8, 2)
    tokens = torch.randn(*lead, 40, 8, requires_grad=True)
    with torch.profiler.profile() as seen:
        module(tokens, tokens, torch.ones(40)).sum().backward()
    names = {event.key for event in seen.key_averages()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in names
    assert "aten::_scaled_dot_product_attention_math" not in names


def test_padded_sets_in_a_batch_attend_as_if_alone() -> None:
    attention = scrambled(MultiHeadAttention(8, 2))
    sets = [random(size, 8, seed=size) for size in (3, 5, 1)]
    padded = torch.full((3, 5, 8), 9.0, dtype=torch.float64)
    weights = torch.zeros(3, 5, dtype=torch.float64)
    for number, tokens in enumerate(sets):
        padded[number, : len(tokens)] = tokens
        weights[number, : len(tokens)] = 1.0 + torch.arange(len(tokens))
    together = attention(padded, padded, weights)
    matrices = attention_matrix(attention, padded, padded, weights)
    for number, tokens in enumerate(sets):
        n = len(tokens)
        alone = attention(tokens, tokens, weights[number, :n])
        torch.testing.assert_close(together[number, :n], alone, rtol=0, atol=1e-13)
        matrix = attention_matrix(attention, tokens, tokens, weights[number, :n])
        torch.testing.assert_close(matrices[number, :, :n, :n], matrix, rtol=0, atol=1e-13)
        assert not matrices[number, :, :, n:].any()
