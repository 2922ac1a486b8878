from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.baselines.nodes.formula import affine, assert_computes, norm
from torch.nn.functional import gelu

from specformer.baselines import Graphormer, Propagation, Transformer
from specformer.baselines.nodes.transformer import working_type
from specformer.errors import ConfigError


def dense_block(h, block, heads, bias):
    """One head at a time, each with its [n, n] matrix of attention."""
    normed = norm(h, block.attention_norm)
    channels = h.shape[1]
    width = channels // heads
    weights = block.attention.project.weight.split(channels)
    biases = block.attention.project.bias.split(channels)
    q, k, v = (normed @ w.T + b for w, b in zip(weights, biases, strict=True))
    mixed = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = q[:, part] @ k[:, part].T / width**0.5 + bias[head]
        mixed.append(scores.softmax(dim=1) @ v[:, part])
    h = h + affine(torch.cat(mixed, dim=1), block.attention.out)
    inner = gelu(affine(norm(h, block.feed_forward_norm), block.widen))
    return h + affine(inner, block.narrow)


def test_against_the_formula(graph):
    model = Transformer(3, 8, 2, heads=2).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    h = affine(x, model.lin_in)
    for block in model.blocks:
        h = dense_block(h, block, heads=2, bias=[0.0, 0.0])
    expected = affine(norm(h, model.norm), model.lin_out)
    assert_computes(model, x, graph.propagation(), expected)


def test_block_against_pytorch(graph):
    block = Transformer(3, 8, 2).double().blocks[0]
    oracle = torch.nn.TransformerEncoderLayer(
        8, 4, dim_feedforward=8, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).double()
    names = {
        "self_attn.in_proj_": "attention.project.",
        "self_attn.out_proj.": "attention.out.",
        "linear1.": "widen.",
        "linear2.": "narrow.",
        "norm1.": "attention_norm.",
        "norm2.": "feed_forward_norm.",
    }
    state = block.state_dict()
    oracle.load_state_dict(
        {
            theirs + kind: state[ours + kind]
            for theirs, ours in names.items()
            for kind in ("weight", "bias")
        }
    )
    h = torch.randn(3, graph.num_nodes, 8, dtype=torch.float64)
    torch.testing.assert_close(block(h), oracle(h))


def test_the_graph_is_not_looked_at(graph):
    model, x = Transformer(3, 8, 2), torch.randn(graph.num_nodes, 3)
    without_edges = Propagation(np.zeros_like(graph.weights))
    assert torch.equal(model(x, graph.propagation()), model(x, without_edges))


def test_heads_must_divide_the_channels():
    with pytest.raises(ConfigError, match=r"hidden_channels=10 .* heads=4"):
        Transformer(3, 10, 2)


def test_repr():
    assert repr(Transformer(3, 8, 2)) == "Transformer(3, 8, 2, num_layers=2, heads=4)"


@pytest.mark.parametrize("kind", [Transformer, Graphormer])
def test_attention_in_bfloat16_is_near(graph, kind, monkeypatch):
    torch.manual_seed(0)
    model, x = kind(3, 32, 2), torch.randn(graph.num_nodes, 3)
    propagation = graph.propagation(torch.float32)

    def outcome():
        out = model(x, propagation)
        return out.detach(), torch.autograd.grad(out.square().sum(), list(model.parameters()))

    exact, gradients = outcome()
    # Not by PyTorch's own switch: with it, products use instructions that some processors lack.
    for module in ("transformer", "graphormer"):
        monkeypatch.setattr(
            f"specformer.baselines.nodes.{module}.working_type", lambda _: torch.bfloat16
        )
    coarse, coarse_gradients = outcome()
    assert not torch.equal(coarse, exact)
    torch.testing.assert_close(coarse, exact, rtol=0.02, atol=0.02)
    largest = max(gradient.abs().max().item() for gradient in gradients)
    torch.testing.assert_close(coarse_gradients, gradients, rtol=0.05, atol=0.02 * largest)


def test_the_switch_that_allows_bfloat16():
    before = torch.get_float32_matmul_precision()
    for level, kind in (("medium", torch.bfloat16), ("high", torch.float32)):
        torch.set_float32_matmul_precision(level)
        try:
            assert working_type(torch.zeros(1)) == kind
            assert working_type(torch.zeros(1, dtype=torch.float64)) == torch.float64
        finally:
            torch.set_float32_matmul_precision(before)
