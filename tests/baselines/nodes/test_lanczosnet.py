from __future__ import annotations

import pytest
import torch
from tests.baselines.nodes.formula import assert_computes
from torch.linalg import matrix_power

from specformer.baselines import LanczosNet


def dense_layer(graph, h, conv, steps):
    """Powers of the adjacency, and functions of its Ritz values as [n, n] matrices."""
    values, v = graph.propagation().lanczos(steps)
    scales = conv.long_scales
    f = conv.filters(torch.stack([values**scale for scale in scales], dim=1))
    short = (conv.short.weight.T).chunk(len(conv.powers.a) + 1, dim=1)
    near = sum(matrix_power(graph.adjacency, k) @ h @ w for k, w in enumerate(short))
    long = conv.long.weight.T.chunk(len(scales), dim=0)
    far = sum(v @ torch.diag(f[:, i]) @ v.T @ h @ w for i, w in enumerate(long))
    return near + far + conv.bias


@pytest.mark.parametrize("steps", [4, 20])
def test_against_the_formula(graph, steps):
    model = LanczosNet(3, 8, 2, num_layers=3, steps=steps).double()
    for conv in model.convs:
        torch.nn.init.normal_(conv.bias)
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    first, last = model.convs
    h = (x @ model.embed.weight.T + model.embed.bias).relu()
    h = dense_layer(graph, h, first, steps).relu()
    expected = dense_layer(graph, h, last, steps)
    assert_computes(model, x, graph.propagation(), expected)


def test_products_are_as_wide_as_the_output(graph, product_widths):
    LanczosNet(3, 8, 2)(torch.randn(graph.num_nodes, 3), graph.propagation(torch.float32))
    assert product_widths == [2] * 3


def test_about_fifty_thousand_parameters_on_photo():
    """Table 2 of the Specformer paper: 50K, with 745 features, 8 classes and 64 channels."""
    count = sum(parameter.numel() for parameter in LanczosNet(745, 64, 8).parameters())
    assert 49_500 <= count <= 52_000


def test_repr():
    assert repr(LanczosNet(3, 8, 2, steps=4, long_scales=[7])) == (
        "LanczosNet(3, 8, 2, num_layers=2, order=3, long_scales=[7], steps=4)"
    )
