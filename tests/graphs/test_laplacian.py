"""The normalised Laplacian: by hand, by three other libraries and by its properties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pygsp.graphs
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import laplacian as csgraph_laplacian

from specformer.errors import ConfigError, GraphError
from specformer.graphs import GraphSet, as_graph, normalised_laplacian, read_graph
from specformer.graphs.laplacian import laplacian_of

# A star 1 - 0 - 2 and an isolated node.
STAR = as_graph([[0, 0], [1, 2]], num_nodes=4)
ROOT = np.sqrt(0.5)


def test_by_hand() -> None:
    expected = [[1, -ROOT, -ROOT, 0], [-ROOT, 1, 0, 0], [-ROOT, 0, 1, 0], [0, 0, 0, 1]]
    laplacian = normalised_laplacian(STAR)
    np.testing.assert_allclose(laplacian.toarray(), expected, rtol=1e-15)
    assert isinstance(laplacian, sp.csr_array)
    assert laplacian.dtype == np.float64


def test_an_isolated_node_has_eigenvalue_one_or_zero() -> None:
    def eigenvalues(isolated: Any) -> Any:
        return np.linalg.eigvalsh(normalised_laplacian(STAR, isolated).toarray())

    np.testing.assert_allclose(eigenvalues("one"), [0, 1, 1, 2], atol=1e-15)
    np.testing.assert_allclose(eigenvalues("zero"), [0, 0, 1, 2], atol=1e-15)


def test_self_loops_count_once_in_the_degree() -> None:
    loops = as_graph([[0, 0, 2], [0, 1, 2]])
    expected = [[0.5, -ROOT, 0], [-ROOT, 1, 0], [0, 0, 0]]
    np.testing.assert_allclose(normalised_laplacian(loops).toarray(), expected, rtol=1e-15)


def test_an_edgeless_graph() -> None:
    empty = as_graph([[], []], num_nodes=3)
    np.testing.assert_array_equal(normalised_laplacian(empty).toarray(), np.eye(3))
    assert normalised_laplacian(empty, isolated="zero").nnz == 0


def test_an_adjacency_matrix_will_do() -> None:
    given_plain = normalised_laplacian(sp.coo_matrix(STAR.adjacency))
    assert (given_plain != normalised_laplacian(STAR)).nnz == 0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Ring", {"N": 9}),
        ("Grid2d", {"N1": 4, "N2": 5}),
        ("Logo", {}),
        ("Sensor", {"N": 40, "seed": 1}),
        ("ErdosRenyi", {"N": 30, "p": 0.05, "seed": 3}),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning:scipy")  # PyGSP calls SciPy the old way
def test_agrees_with_pygsp(kind: str, options: dict[str, Any]) -> None:
    peer = getattr(pygsp.graphs, kind)(**options)
    peer.compute_laplacian("normalized")
    ours = normalised_laplacian(as_graph(peer.W), isolated="zero")
    np.testing.assert_allclose(ours.toarray(), peer.L.toarray(), atol=1e-15)


weights = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
matrices = st.integers(1, 7).flatmap(
    lambda n: st.lists(weights, min_size=n * n, max_size=n * n).map(
        lambda cells: sp.csr_array(np.reshape(cells, (n, n)))
    )
)


@given(matrices)
@settings(max_examples=60, deadline=None)
def test_agrees_with_scipy_and_networkx(matrix: Any) -> None:
    adjacency = as_graph(matrix).adjacency
    ours = normalised_laplacian(adjacency, isolated="zero").toarray()
    theirs = nx.normalized_laplacian_matrix(nx.from_scipy_sparse_array(adjacency)).toarray()
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    loopless = as_graph(adjacency - sp.diags_array(adjacency.diagonal()))
    ours = normalised_laplacian(loopless, isolated="zero").toarray()
    theirs = csgraph_laplacian(loopless.adjacency, normed=True).toarray()
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


@given(matrices)
@settings(max_examples=60, deadline=None)
def test_is_symmetric_with_eigenvalues_between_0_and_2(matrix: Any) -> None:
    graph = as_graph(matrix)
    for isolated in ("one", "zero"):
        laplacian = normalised_laplacian(graph, isolated).toarray()  # type: ignore[arg-type]
        np.testing.assert_array_equal(laplacian, laplacian.T)
        eigenvalues = np.linalg.eigvalsh(laplacian)
        assert eigenvalues.min() >= -1e-12
        assert eigenvalues.max() <= 2 + 1e-12


@pytest.mark.parametrize("isolated", ["one", "zero"])
def test_many_graphs_have_the_laplacians_of_each_to_the_bit(isolated: Any) -> None:
    edges = [np.array([[0, 1, 1], [1, 2, 1]]), np.empty((2, 0), int), np.array([[3], [0]])]
    counts = np.array([[3, 2, 4], [3, 0, 1]])
    graphs = GraphSet(*counts, np.concatenate(edges, axis=1))
    order = np.array([2, 0, 1])
    blocks = laplacian_of(graphs.joined(order), isolated)
    alone = [
        normalised_laplacian(as_graph(edges[i], num_nodes=counts[0, i]), isolated) for i in order
    ]
    np.testing.assert_array_equal(blocks.toarray(), sp.block_diag(alone).toarray())


@pytest.mark.parametrize("scale", [2.0**-1070, 1e-310, 1e-150, 1e150])
def test_the_unit_of_the_weights_does_not_matter(scale: float) -> None:
    scaled = normalised_laplacian(STAR.adjacency * scale).toarray()
    np.testing.assert_allclose(scaled, normalised_laplacian(STAR).toarray(), rtol=1e-14)


def test_the_null_space_counts_the_components_of_a_real_graph(shared_data: Path) -> None:
    graph = read_graph(shared_data / "cora.npz")
    assert graph.num_components == 78
    degree_root = np.sqrt(graph.adjacency.sum(axis=1))
    np.testing.assert_allclose(normalised_laplacian(graph) @ degree_root, 0, atol=1e-13)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="isolated must be 'one' or 'zero', not 'two'"):
        normalised_laplacian(STAR, isolated="two")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="adjacency is not symmetric"):
        normalised_laplacian(sp.csr_array([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(GraphError, match="adjacency must be a SciPy sparse array, not ndarray"):
        normalised_laplacian(np.eye(2))
