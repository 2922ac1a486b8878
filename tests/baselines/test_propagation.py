from __future__ import annotations

import warnings

import pytest
import torch

from specformer.baselines import Propagation


@pytest.mark.parametrize("name", ["adjacency", "laplacian", "adjacency_with_loops"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_products_are_dense_products(graph, name, lead):
    h = torch.randn(*lead, graph.num_nodes, 4, dtype=torch.float64)
    product = getattr(graph.propagation(), name)(h)
    torch.testing.assert_close(product, getattr(graph, name) @ h)


@pytest.mark.parametrize("name", ["adjacency", "laplacian", "adjacency_with_loops"])
def test_products_are_differentiable(graph, name):
    h = torch.randn(2, graph.num_nodes, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(graph.propagation(), name), h)


def test_a_chain_of_stacked_products_copies_once(graph):
    propagation = graph.propagation()
    h = propagation.adjacency(torch.randn(3, graph.num_nodes, 4, dtype=torch.float64))
    assert h.transpose(0, 1).is_contiguous()


def test_edges(graph):
    propagation = graph.propagation()
    assert torch.equal(propagation.edge_index, graph.edge_index)
    source, target = propagation.edge_index_with_loops
    loops = source[source == target]
    assert loops.tolist() == list(range(graph.num_nodes))
    assert len(source) == graph.edge_index.size(1) + graph.num_nodes


def test_self_loops_of_the_graph_weigh_but_send_no_message_twice(graph):
    graph.weights[0, 0] = 2.0
    propagation = graph.propagation()
    h = torch.eye(graph.num_nodes, dtype=torch.float64)
    torch.testing.assert_close(propagation.adjacency(h), graph.adjacency)
    assert (propagation.edge_index[0] != propagation.edge_index[1]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_no_warning(graph, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = Propagation(graph.weights, dtype=dtype).adjacency(torch.eye(9, dtype=dtype))
    torch.testing.assert_close(out, graph.adjacency.to(dtype))
