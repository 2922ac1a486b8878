from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from tests.baselines.nodes.formula import assert_computes
from torch.nn.functional import elu, leaky_relu

from specformer.baselines import GAT
from specformer.baselines.nodes.gat import GATConv
from specformer.errors import ConfigError


def dense_head(graph, x, weight, att_src, att_dst):
    """One head of attention as an [n, n] matrix."""
    h = x @ weight.T
    score = leaky_relu((h @ att_dst)[:, None] + (h @ att_src)[None, :], 0.2)
    linked = torch.as_tensor(graph.weights > 0) | torch.eye(graph.num_nodes, dtype=torch.bool)
    return score.masked_fill(~linked, -torch.inf).softmax(dim=1) @ h


def dense_heads(graph, x, conv):
    weights = conv.lin.weight.unflatten(0, (conv.heads, -1))
    return [
        dense_head(graph, x, *head)
        for head in zip(weights, conv.att_src, conv.att_dst, strict=True)
    ]


def test_against_the_formula(graph):
    model = GAT(3, 8, 2, heads=2).double()
    x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
    first, last = model.convs
    hidden = elu(torch.cat(dense_heads(graph, x, first), dim=1) + first.bias)
    expected = torch.stack(dense_heads(graph, hidden, last)).mean(0) + last.bias
    assert_computes(model, x, graph.propagation(), expected)


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize(("in_channels", "channels"), [(2, 5), (5, 2)])
def test_layer_against_pyg(graph, in_channels, channels, concat):
    conv = GATConv(in_channels, channels, heads=3, concat=concat).double()
    torch.nn.init.normal_(conv.bias)
    oracle = pyg.GATConv(in_channels, channels, heads=3, concat=concat).double()
    state = conv.state_dict()
    oracle.load_state_dict(
        {name: value[None] if "att" in name else value for name, value in state.items()}
    )
    x = torch.randn(graph.num_nodes, in_channels, dtype=torch.float64)
    torch.testing.assert_close(conv(x, graph.propagation()), oracle(x, graph.edge_index))


def test_heads_must_divide_the_channels():
    with pytest.raises(ConfigError, match="10 with 4 heads"):
        GAT(3, 10, 2, heads=4)


def test_repr():
    assert repr(GAT(3, 8, 2, heads=4)) == "GAT(3, 8, 2, num_layers=2, heads=4)"
