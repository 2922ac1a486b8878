"""Every source becomes the same graph, by the same rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import KarateClub
from torch_geometric.transforms import ToSparseTensor

import specformer as sf
from specformer.errors import GraphError
from specformer.graphs import as_adjacency, as_graph, write_npz
from specformer.graphs.checks import check_features, check_room
from specformer.graphs.convert import signed_adjacency

# 0 - 1, 1 - 2 and a loop on 2; node 3 is alone.
EDGES = [[0, 1, 1, 2], [1, 0, 2, 2]]
PATTERN = [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def dense(source: Any, **options: Any) -> np.ndarray:
    return as_graph(source, **options).adjacency.toarray()


@pytest.mark.parametrize(
    "edge_index",
    [
        EDGES,
        np.array(EDGES),
        np.array(EDGES, dtype=np.uint8),
        torch.tensor(EDGES),
        torch.tensor(EDGES, dtype=torch.int32),
    ],
    ids=["list", "int64", "uint8", "tensor", "tensor32"],
)
def test_edge_index_of_any_kind(edge_index: Any) -> None:
    np.testing.assert_array_equal(dense(edge_index, num_nodes=4), PATTERN)
    assert as_graph(edge_index).num_nodes == 3


def test_unweighted_edges_count_once_however_often_they_are_repeated() -> None:
    np.testing.assert_array_equal(dense([[0, 0, 1, 1], [1, 1, 0, 1]]), [[0, 1], [1, 1]])


def test_weighted_edges_add_up_along_and_meet_in_the_larger_across() -> None:
    edges, weight = [[0, 0, 1, 2, 2], [1, 1, 0, 2, 0]], [1.0, 2.0, 5.0, 4.0, 0.0]
    expected = [[0, 5, 0], [5, 0, 0], [0, 0, 4]]
    np.testing.assert_array_equal(dense(edges, edge_weight=weight), expected)
    np.testing.assert_array_equal(dense([[0, 0], [1, 1]], edge_weight=[1, 2]), [[0, 3], [3, 0]])


def test_zero_weights_are_not_stored() -> None:
    graph = as_graph([[0, 1], [1, 2]], edge_weight=torch.tensor([0.0, 1.0]))
    assert (graph.num_edges, graph.adjacency.nnz) == (1, 2)


@pytest.mark.parametrize("edges", [[[], []], torch.empty(2, 0), np.empty((2, 0), int)])
def test_nodes_without_edges_are_a_graph(edges: Any) -> None:
    graph = as_graph(edges, num_nodes=3)
    assert (graph.num_nodes, graph.num_edges, graph.num_components) == (3, 0, 3)


def test_pyg_data_brings_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    data = Data(
        edge_index=torch.tensor(EDGES),
        edge_attr=torch.rand(4),
        x=torch.eye(4, requires_grad=True),
        y=torch.tensor([[0], [1], [-1], [1]]),
        train_mask=torch.tensor([True, False, False, False]),
        test_mask=torch.zeros(4, 2, dtype=torch.bool),
    )
    graph = as_graph(data, name="own")
    np.testing.assert_array_equal(graph.adjacency.toarray(), PATTERN)  # edge_attr is no weight
    np.testing.assert_array_equal(graph.x, np.eye(4))
    np.testing.assert_array_equal(graph.y, [0, 1, -1, 1])
    assert graph.train_mask.shape == graph.test_mask.shape == (4, 2)
    assert graph.val_mask is None
    assert graph.name == "own"
    assert caplog.messages == ["own: edge_attr is not read; weights are edge_weight"]


def test_pyg_edge_weight_is_used_and_overridden() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), edge_weight=torch.tensor([2.0]), num_nodes=2)
    np.testing.assert_array_equal(dense(data), [[0, 2], [2, 0]])
    np.testing.assert_array_equal(dense(data, edge_weight=[3.0]), [[0, 3], [3, 0]])


def test_adjacency_of_a_molecule_does_not_mind_labels_of_the_whole_graph() -> None:
    data = Data(edge_index=torch.tensor(EDGES), y=torch.tensor([[float("nan")]]), num_nodes=4)
    np.testing.assert_array_equal(as_adjacency(data).toarray(), PATTERN)
    with pytest.raises(GraphError, match=r"y must have shape .*, not \[1, 1\]"):
        as_graph(data)


def test_adjacency_of_any_other_source_is_its_graphs() -> None:
    np.testing.assert_array_equal(as_adjacency(EDGES, num_nodes=4).toarray(), PATTERN)
    np.testing.assert_array_equal(as_adjacency(nx.path_graph(2)).toarray(), [[0, 1], [1, 0]])


def test_networkx_keeps_its_order_and_names() -> None:
    source = nx.Graph(name="friends")
    source.add_nodes_from(["cy", "ann"])
    source.add_edge("bob", "cy")
    graph = as_graph(source)
    assert graph.node_ids == ("cy", "ann", "bob")
    assert graph.name == "friends"
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 0, 1], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx_of_every_kind_gives_the_pattern(kind: Any) -> None:
    source = kind([(0, 1), (1, 0), (1, 2), (2, 2)])
    source.add_node(3)
    np.testing.assert_array_equal(dense(source), PATTERN)


def test_networkx_weights_agree_with_its_own_matrix() -> None:
    source = nx.MultiGraph()
    source.add_weighted_edges_from([(0, 1, 2.0), (1, 0, 3.0), (1, 1, 4.0)])
    source.add_edge(1, 2)
    np.testing.assert_array_equal(dense(source), nx.to_numpy_array(source))
    np.testing.assert_array_equal(dense(source), [[0, 5, 0], [5, 4, 1], [0, 1, 0]])


def test_networkx_without_edges() -> None:
    assert as_graph(nx.empty_graph(3)).num_components == 3


@pytest.mark.parametrize("form", [sp.csr_array, sp.coo_matrix, sp.csc_matrix, sp.lil_array])
def test_scipy_values_are_weights(form: Any) -> None:
    np.testing.assert_array_equal(dense(form([[0.0, 2.0], [5.0, 1.0]])), [[0, 5], [5, 1]])


@pytest.mark.parametrize("form", [sp.coo_array, sp.csr_array])
def test_scipy_booleans_are_a_pattern(form: Any) -> None:
    if form is sp.coo_array:
        matrix = sp.coo_array((np.ones(2, bool), ([0, 0], [1, 1])), shape=(2, 2))
    else:
        matrix = sp.csr_array((np.ones(2, bool), [1, 1], [0, 2, 2]), shape=(2, 2))
    np.testing.assert_array_equal(dense(matrix), [[0, 1], [1, 0]])


LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_values_of_a_sparse_tensor_are_weights(layout: torch.layout) -> None:
    weights = torch.tensor([[0.0, 2.0, 0.0], [5.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(
        dense(weights.to_sparse(layout=layout)), [[0, 5, 0], [5, 1, 0], [0, 0, 0]]
    )


def test_a_sparse_tensor_of_booleans_is_a_pattern() -> None:
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], [True, True], (2, 2))
    np.testing.assert_array_equal(dense(twice), [[0, 1], [1, 0]])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sparse_features_stay_sparse(layout: torch.layout, kind: torch.dtype) -> None:
    x = torch.tensor([[0.0, 2.0], [0.0, 0.0], [0.5, 0.0], [0.0, 0.0]], dtype=kind)
    graph = as_graph(Data(x=x.to_sparse(layout=layout), edge_index=torch.tensor(EDGES)))
    assert sp.issparse(graph.x)
    assert (graph.x.dtype, graph.x.nnz) == (np.float32, 2)
    np.testing.assert_array_equal(graph.x.toarray(), x.float())


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float16, torch.bfloat16], ids=str)
def test_features_of_any_type_become_float32(kind: torch.dtype) -> None:
    graph = as_graph(Data(x=torch.eye(4, dtype=kind), edge_index=torch.tensor(EDGES)))
    assert graph.x.dtype == np.float32
    np.testing.assert_array_equal(graph.x, np.eye(4))


def test_pyg_data_with_a_transposed_adjacency_alone() -> None:
    data = Data(
        x=torch.eye(3), edge_index=torch.tensor([[0], [1]]), edge_weight=torch.tensor([2.0])
    )
    expected = as_graph(data)
    sparse = ToSparseTensor(attr="edge_weight")(data)
    assert sparse.edge_index is None
    graph = as_graph(sparse)
    np.testing.assert_array_equal(graph.adjacency.toarray(), expected.adjacency.toarray())
    np.testing.assert_array_equal(as_adjacency(sparse).toarray(), expected.adjacency.toarray())
    np.testing.assert_array_equal(graph.x, np.eye(3))


def test_a_graph_is_returned_as_it_is() -> None:
    graph = as_graph(EDGES)
    assert as_graph(graph) is graph
    assert as_graph(graph, num_nodes=3) is graph
    assert as_graph(graph, name="other").name == "other"


def test_a_path_is_read(tmp_path: Path) -> None:
    write_npz(tmp_path / "own.npz", as_graph(EDGES))
    assert as_graph(tmp_path / "own.npz").num_edges == 2
    assert as_graph(str(tmp_path / "own.npz")).name == "own"


edge_lists = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20)


@given(edge_lists, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_order_direction_and_repetition_of_edges_do_not_matter(edges: Any, random: Any) -> None:
    mixed = [random.choice([edge, edge[::-1]]) for edge in edges * 2]
    random.shuffle(mixed)
    plain, other = (dense(np.array(each).T, num_nodes=7) for each in (edges, mixed))
    np.testing.assert_array_equal(plain, other)
    np.testing.assert_array_equal(plain, plain.T)


NAN = float("nan")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ([[0, 1], [1, 9]], {"num_nodes": 3}, r"edge_index\[1, 1\] is 9, outside 0..2"),
        ([[0, -1], [1, 1]], {}, r"edge_index\[0, 1\] is -1, outside 0..1"),
        ([[-1], [-1]], {}, r"edge_index\[0, 0\] is -1"),
        ([[0.0], [1.0]], {}, "edge_index must hold integers, not float64"),
        (torch.tensor([[0.0], [1.0]]), {}, "edge_index must hold integers, not float32"),
        (np.array([["a"], ["b"]]), {}, "edge_index must hold integers, not <U1"),
        (np.array([[None], [1]]), {}, "edge_index must hold integers, not object"),
        ([[0, 1], [1]], {}, "edge_index cannot be read as an array of integers"),
        ([[0, 1], [1, 2], [2, 0]], {}, r"edge_index must have shape \[2, edges\], not \[3, 2\]"),
        ([0, 1], {}, r"edge_index must have shape \[2, edges\], not \[2\]"),
        (torch.ones(3, 2, dtype=torch.long), {}, r"not \[3, 2\]; transpose a list of pairs"),
        (np.ones((3, 3)), {}, r"not \[3, 3\]; a dense adjacency matrix is passed as scipy"),
        (torch.ones(2, 3).to_sparse(), {}, r"adjacency must be square, but its shape is \[2, 3\]"),
        (torch.eye(2).to_sparse(), {"edge_weight": [1.0]}, "edge_weight applies to an edge_index"),
        ([Data(num_nodes=1)], {}, "list holds several graphs; pass one of them"),
        (pd.DataFrame({"source": [0, 1], "target": [1, 2]}), {}, r"to_numpy\(\).T with the names"),
        (KarateClub(), {}, "KarateClub holds several graphs; pass one of them"),
        ([[], []], {}, "no nodes: without edges, num_nodes must be given"),
        ([[], []], {"num_nodes": 0}, "the graph has no nodes"),
        ([[0], [2**62]], {}, f"{2**62 + 1:,} nodes need about .*; number nodes from"),
        (np.array([[0], [2**64 - 1]], np.uint64), {}, f"{2**64:,} nodes need about"),
        (EDGES, {"num_nodes": 10**15}, "1,000,000,000,000,000 nodes need about"),
        (EDGES, {"num_nodes": -4}, "num_nodes must be at least 1, not -4"),
        (EDGES, {"num_nodes": 2.5}, "num_nodes must be an integer, not 2.5"),
        (EDGES, {"edge_weight": [1, 2]}, r"edge_weight must have shape \[4\], not \[2\]"),
        (EDGES, {"edge_weight": [1, 1, -2, 1]}, r"edge_weight\[2\] is -2.0"),
        (EDGES, {"edge_weight": [1, NAN, 1, 1]}, r"edge_weight\[1\] is nan"),
        (EDGES, {"edge_weight": [1, 1, 1, np.inf]}, r"edge_weight\[3\] is inf"),
        (EDGES, {"edge_weight": ["a"] * 4}, "edge_weight must hold numbers, not <U1"),
        (sp.csr_array((2, 3)), {}, r"adjacency must be square, but its shape is \[2, 3\]"),
        (sp.csr_array([[0, -1.0], [0, 0]]), {}, r"adjacency\[0, 1\] is -1.0"),
        (sp.csr_array([[0, 0], [NAN, 0]]), {}, r"adjacency\[1, 0\] is nan"),
        (sp.csr_array((0, 0)), {}, "the graph has no nodes"),
        (sp.eye_array(2), {"edge_weight": [1.0]}, "edge_weight applies to an edge_index"),
        (sp.eye_array(2), {"num_nodes": 3}, "num_nodes is 3, but the graph has 2 nodes"),
        (nx.Graph(), {}, "the graph has no nodes"),
        (nx.Graph([("a", "b", {"weight": -1})]), {}, r"edge \('a', 'b'\): weight -1 is not"),
        (nx.Graph([("a", "b", {"weight": NAN})]), {}, r"edge \('a', 'b'\): weight nan is not"),
        (nx.Graph([("a", "b", {"weight": "x"})]), {}, r"edge \('a', 'b'\): weight 'x' is not"),
        (nx.Graph([(1, "1")]), {}, "node_ids has '1' more than once"),
        (Data(x=torch.ones(2, 1)), {}, "Data has no edge_index"),
        (HeteroData(), {}, r"cannot read a graph from HeteroData; pass its \.to_homogeneous\(\)"),
        (42, {}, "cannot read a graph from int"),
        (None, {}, "cannot read a graph from NoneType"),
        ("no/such.npz", {}, r"no/such.npz: there is no such file or folder"),
    ],
)
def test_bad_sources_are_named(source: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        as_graph(source, **options)


def test_more_nodes_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specformer.graphs.checks.free_bytes", lambda: 2**32)
    message = "300,000,000 nodes need about 27.9 GiB of memory, but 4.0 GiB are free; number nodes"
    for edges, options in (([[0], [3 * 10**8 - 1]], {}), ([[0], [1]], {"num_nodes": 3 * 10**8})):
        with pytest.raises(GraphError, match=message):
            as_graph(edges, **options)
    with pytest.raises(GraphError, match=r"^400,000,000 edges need about .* take a part"):
        check_room(nodes=5, edges=4 * 10**8)
    with pytest.raises(GraphError, match=r"^1,000,000,000 features need about 93.1 GiB"):
        check_features(sp.csr_array((2, 10**9)), 2)
    assert as_graph([[0], [1]], num_nodes=10**6).num_nodes == 10**6


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": torch.tensor([[torch.inf], [1.0], [1.0]])}, r"x\[0, 0\] is inf"),
        ({"x": torch.ones(2, 1)}, "outside 0..1"),
        ({"y": torch.zeros(2, dtype=torch.long)}, r"y must have shape \[3\] or .*, not \[2\]"),
        ({"val_mask": torch.ones(2, dtype=torch.bool)}, "val_mask must have shape"),
    ],
)
def test_bad_pyg_fields_are_named(fields: dict[str, Any], message: str) -> None:
    nodes = {} if "x" in fields else {"num_nodes": 3}
    with pytest.raises(GraphError, match=message):
        as_graph(Data(edge_index=torch.tensor(EDGES), **nodes, **fields))


TRIANGLE = np.array([[0, 1, 2], [1, 2, 0]])
WEIGHTS = np.array([1.0, -2.0, 3.0])
EXPECTED = np.array([[0.0, 1, 3], [1, 0, -2], [3, -2, 0]])


def sources() -> list[Any]:
    graph = nx.Graph()
    graph.add_nodes_from(range(3))
    graph.add_weighted_edges_from(zip(*TRIANGLE.tolist(), WEIGHTS.tolist(), strict=True))
    edges, weights = torch.tensor(TRIANGLE), torch.tensor(WEIGHTS)
    return [
        graph,
        sp.coo_array((WEIGHTS, tuple(TRIANGLE)), shape=(3, 3)),
        torch.sparse_coo_tensor(edges, weights, (3, 3), check_invariants=True),
        Data(edge_index=edges, edge_weight=weights, num_nodes=3),
    ]


@pytest.mark.parametrize("source", sources(), ids=lambda each: type(each).__name__)
def test_every_source_may_have_negative_weights(source: Any) -> None:
    np.testing.assert_array_equal(signed_adjacency(source).toarray(), EXPECTED)
    np.testing.assert_array_equal(
        signed_adjacency(TRIANGLE, edge_weight=WEIGHTS).toarray(), EXPECTED
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_number_of_a_type_is_a_weight(dtype: Any) -> None:
    least = np.iinfo(dtype).min
    matrix = np.array([[0, least, 0], [least, 0, 1], [0, 1, 0]], dtype)
    np.testing.assert_array_equal(signed_adjacency(sp.coo_array(matrix)).toarray(), matrix * 1.0)


def test_an_all_negative_triangle_has_its_closed_form() -> None:
    """L = I + A/2 and A has the eigenvalues 2, −1, −1."""
    spectrum = sf.decompose(TRIANGLE, edge_weight=-np.ones(3), dtype=torch.float64)
    torch.testing.assert_close(
        spectrum.eigenvalues, torch.tensor([0.5, 0.5, 2.0], dtype=torch.float64)
    )


def test_a_balanced_graph_has_the_spectrum_of_its_sizes() -> None:
    """Switching the signs of some nodes changes A to SAS, and eigenvectors to S U."""
    random = np.random.default_rng(0)
    edges = random.integers(0, 30, (2, 90))
    weight, sign = random.random(90) + 0.1, random.choice([-1.0, 1.0], 30)
    edges, place = np.unique(np.sort(edges, axis=0), axis=1, return_index=True)
    weight = weight[place]
    signed = weight * sign[edges[0]] * sign[edges[1]]
    one = sf.decompose(edges, 30, signed, dtype=torch.float64)
    other = sf.decompose(edges, 30, weight, dtype=torch.float64)
    torch.testing.assert_close(one.eigenvalues, other.eigenvalues)
    assert one.eigenvalues[0] == 0.0


@pytest.mark.parametrize("solver", ["chebyshev", "lanczos"])
def test_iterative_solvers_agree_with_numpy(solver: Any) -> None:
    """A triangle of negative weights has an eigenvalue 2 that an unsigned one does not have."""
    random = np.random.default_rng(1)
    edges = np.concatenate([random.integers(0, 300, (2, 900)), TRIANGLE + 300], axis=1)
    edges = np.unique(np.sort(edges, axis=0), axis=1)
    weight = random.normal(size=edges.shape[1])
    weight[(edges >= 300).all(axis=0)] = -1.0
    adjacency = signed_adjacency(edges, 303, weight).toarray()
    degree = np.abs(adjacency).sum(axis=1)
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    expected = np.linalg.eigvalsh(np.eye(303) - adjacency / root / root[:, None])
    found = sf.decompose(edges, 303, weight, k=(5, 5), solver=solver, dtype=torch.float64)
    values = found.eigenvalues.numpy()
    np.testing.assert_allclose(values[:5], expected[:5], atol=1e-8)
    np.testing.assert_allclose(values[-5:], expected[-5:], atol=1e-8)


def test_a_pair_with_both_signs_is_refused() -> None:
    with pytest.raises(sf.GraphError, match="nodes 0 and 1 are joined by a positive and by a neg"):
        sf.decompose([[0, 1], [1, 0]], edge_weight=[1.0, -1.0])


def test_weights_of_both_signs_whose_sum_overflows_are_refused() -> None:
    edges, weight = [[0, 1], [1, 2]], np.array([1.0, -1.0])
    with pytest.raises(sf.GraphError, match="so large that their sum overflows float64"):
        sf.decompose(edges, edge_weight=1.5e308 * weight)
    found = sf.decompose(edges, edge_weight=0.5e308 * weight, dtype=torch.float64)
    np.testing.assert_allclose(found.eigenvalues, [0.0, 1.0, 2.0], atol=1e-12)  # a path's
