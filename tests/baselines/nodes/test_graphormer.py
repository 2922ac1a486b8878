from __future__ import annotations

import pytest
import scipy.sparse as sp
import torch
from tests.baselines.nodes.formula import affine, assert_computes, norm
from torch.nn.functional import gelu

from specformer.baselines import Graphormer, Propagation
from specformer.errors import ConfigError


def dense_bias(graph, table, limit):
    """Entry by entry: every head's number for the distance of every pair."""
    rows = []
    for i in range(graph.num_nodes):
        for j in range(graph.num_nodes):
            distance = graph.distances[i, j].item()
            bucket = limit + 1 if distance == float("inf") else min(int(distance), limit)
            rows.append(table[:, bucket])
    return torch.stack(rows, dim=1).view(len(table), graph.num_nodes, graph.num_nodes)


@pytest.mark.parametrize(("max_degree", "max_distance"), [(512, 20), (1, 2), (1, 1)])
def test_against_the_formula(graph, max_degree, max_distance):
    heads, width = 2, 4
    model = Graphormer(
        3, 8, 2, heads=heads, max_degree=max_degree, max_distance=max_distance
    ).double()
    torch.nn.init.normal_(model.degree_embedding)
    torch.nn.init.normal_(model.distance_bias)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    degrees = [min(int(row.sum()), max_degree) for row in graph.weights > 0]
    bias = dense_bias(graph, model.distance_bias, max_distance)
    h = affine(x, model.lin_in) + torch.stack([model.degree_embedding[d] for d in degrees])
    for block in model.blocks:
        q, k, v = affine(norm(h, block.attention_norm), block.attention.project).split(8, dim=1)
        mixed = [
            (q[:, part] @ k[:, part].T / width**0.5 + bias[head]).softmax(dim=1) @ v[:, part]
            for head, part in enumerate((slice(0, width), slice(width, None)))
        ]
        h = h + affine(torch.cat(mixed, dim=1), block.attention.out)
        h = h + affine(gelu(affine(norm(h, block.feed_forward_norm), block.widen)), block.narrow)
    expected = affine(norm(h, model.norm), model.lin_out)
    assert_computes(model, x, graph.propagation(), expected)


def test_gradients_are_summed_by_distance_some_rows_at_a_time(graph, monkeypatch):
    model = Graphormer(3, 8, 2, max_distance=3).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)

    def gradient():
        out = model(x, graph.propagation())
        return torch.autograd.grad(out.square().sum(), model.distance_bias)[0]

    whole = gradient()
    monkeypatch.setattr("specformer.baselines.nodes.graphormer._PAIRS", 2 * graph.num_nodes + 1)
    torch.testing.assert_close(gradient(), whole)


def test_large_graphs_are_refused_with_the_figure():
    many = Propagation(sp.csr_array((30_000, 30_000)))
    with pytest.raises(ConfigError, match=r"30,000 nodes would be 900,000,000 numbers"):
        Graphormer(3, 8, 2)(torch.zeros(30_000, 3), many)


def test_repr():
    assert repr(Graphormer(3, 8, 2)) == "Graphormer(3, 8, 2, num_layers=2, heads=4)"
