"""Products with a graph's matrices, and its Ritz pairs."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from specformer.baselines import Propagation
from specformer.baselines.nodes.propagation import ritz_pairs
from specformer.errors import ConfigError

PRODUCTS = ["adjacency", "adjacency_with_loops", "one_hop", "two_hop"]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_products_are_dense_products(graph, name, lead):
    h = torch.randn(*lead, graph.num_nodes, 4, dtype=torch.float64)
    product = getattr(graph.propagation(), name)(h)
    torch.testing.assert_close(product, getattr(graph, name) @ h)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_differentiable(graph, name):
    h = torch.randn(2, graph.num_nodes, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(graph.propagation(), name), h)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_copy_of_one_in_use_is_one_of_the_same_graph(graph, name):
    propagation = graph.propagation()
    h = torch.randn(graph.num_nodes, 4, dtype=torch.float64)
    getattr(propagation, name)(h)
    nodes = propagation.distances(2), propagation.degrees
    other = copy.deepcopy(propagation)
    torch.testing.assert_close(getattr(other, name)(h), getattr(graph, name) @ h)
    assert torch.equal(other.distances(2), nodes[0])
    assert torch.equal(other.degrees, nodes[1])


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
    torch.testing.assert_close(propagation.one_hop(h), graph.one_hop)
    torch.testing.assert_close(propagation.two_hop(h), graph.two_hop)
    assert (propagation.one_hop(h).diag() == 0).all()
    assert propagation.degrees[0] == (graph.weights[0, 1:] > 0).sum()
    assert (propagation.edge_index[0] != propagation.edge_index[1]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_no_warning(graph, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = Propagation(graph.weights, dtype=dtype).adjacency(torch.eye(9, dtype=dtype))
    torch.testing.assert_close(out, graph.adjacency.to(dtype))


@pytest.mark.parametrize(
    ("adjacency", "message"),
    [
        (np.ones((2, 3)), r"square, but its shape is \[2, 3\]"),
        (np.array([[0.0, 1.0], [0.0, 0.0]]), "must be symmetric"),
        (np.array([[0.0, -1.0], [-1.0, 0.0]]), "negative or not finite"),
        (np.array([[0.0, np.nan], [np.nan, 0.0]]), "negative or not finite"),
    ],
    ids=["oblong", "directed", "negative", "nan"],
)
def test_what_is_no_adjacency_is_refused(adjacency, message):
    with pytest.raises(ConfigError, match=message):
        Propagation(adjacency)


def test_stored_zeros_are_no_edges_and_repeats_are_one():
    weights, columns = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0], [1, 1, 0, 0, 2, 1]
    stored = sp.csr_array((weights, columns, [0, 2, 5, 6]), shape=(3, 3))
    propagation = Propagation(stored)
    assert propagation.edge_index.tolist() == [[0, 1], [1, 0]]
    assert propagation.degrees.tolist() == [1, 1, 0]
    assert stored.nnz == 6  # the caller's is left alone


def test_a_signal_of_another_precision_is_named(graph):
    with pytest.raises(
        ConfigError, match=r"signal is torch\.float32, but the graph is torch\.float64"
    ):
        graph.propagation().adjacency(torch.ones(graph.num_nodes, 1))


def test_degrees_count_neighbours(graph):
    expected = (graph.weights > 0).sum(axis=1)
    assert graph.propagation().degrees.tolist() == expected.tolist()


def test_ritz_pairs_are_kept_and_have_the_dtype(graph):
    propagation = graph.propagation(torch.float32)
    values, vectors = propagation.lanczos(4)
    assert values.shape == (4,)
    assert vectors.shape == (graph.num_nodes, 4)
    assert values.dtype == vectors.dtype == torch.float32
    assert propagation.lanczos(4)[1] is vectors


def test_distances_are_kept(graph):
    propagation = graph.propagation()
    distances = propagation.distances(3)
    assert distances.dtype == torch.uint8
    assert propagation.distances(3) is distances
    assert propagation.distances(2).max() == 3
    large = propagation.distances(300)  # no path at all is 301
    assert large.dtype == torch.int32


@pytest.fixture
def matrix() -> sp.csr_array:
    rng = np.random.default_rng(0)
    a = rng.random((30, 30)) * (rng.random((30, 30)) < 0.3)
    a = a + a.T
    scale = np.sqrt(a.sum(axis=1))
    return sp.csr_array(a / np.outer(scale, scale))


def three_term(matrix: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """Eigenvalues of the tridiagonal matrix of the textbook's recurrence."""
    q = np.random.default_rng(seed).standard_normal(len(matrix))
    q, before, beta = q / np.linalg.norm(q), np.zeros(len(matrix)), 0.0
    alphas, betas = [], []
    for _ in range(steps):
        w = matrix @ q - beta * before
        alphas.append(q @ w)
        w = w - alphas[-1] * q
        beta = np.linalg.norm(w)
        betas.append(beta)
        before, q = q, w / beta
    return np.linalg.eigvalsh(np.diag(alphas) + np.diag(betas[:-1], 1) + np.diag(betas[:-1], -1))


@pytest.mark.parametrize("steps", [1, 6])
def test_values_are_those_of_the_three_term_recurrence(matrix, steps):
    values, _ = ritz_pairs(matrix, steps, seed=3)
    np.testing.assert_allclose(values, three_term(matrix.toarray(), steps, seed=3), atol=1e-10)


def test_vectors_are_ritz_vectors(matrix):
    values, vectors = ritz_pairs(matrix, 12, seed=0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(12), atol=1e-12)
    np.testing.assert_allclose(vectors.T @ (matrix @ vectors), np.diag(values), atol=1e-12)
    largest = np.linalg.eigvalsh(matrix.toarray())[-1]
    assert values[-1] == pytest.approx(largest, abs=1e-6)


@pytest.mark.parametrize("steps", [30, 50])
def test_enough_steps_give_every_eigenpair(matrix, steps):
    values, vectors = ritz_pairs(matrix, steps, seed=0)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix.toarray()), atol=1e-10)
    np.testing.assert_allclose(vectors * values @ vectors.T, matrix.toarray(), atol=1e-10)


def test_repeated_eigenvalues_are_found_after_a_breakdown():
    complete = sp.csr_array((np.ones((6, 6)) - np.eye(6)) / 5)
    values, vectors = ritz_pairs(complete, 6, seed=0)
    np.testing.assert_allclose(values, [-0.2] * 5 + [1], atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-12)


def test_a_graph_without_edges():
    values, vectors = ritz_pairs(sp.csr_array((5, 5)), 3, seed=0)
    assert values.tolist() == [0, 0, 0]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)
