"""The graph itself: what it counts, how it looks, what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from specformer.errors import GraphError
from specformer.graphs import Graph, GraphSet

# 0 - 1 - 2 in a path, a loop on 2, and 3 alone.
ADJACENCY = np.array(
    [
        [0.0, 1.0, 0.0, 0.0],
        [1.0, 0.0, 1.0, 0.0],
        [0.0, 1.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
    ]
)


def graph(**fields: object) -> Graph:
    return Graph(csr_array(ADJACENCY), **fields)  # type: ignore[arg-type]


def test_counts_of_a_graph_with_a_loop_and_an_isolated_node() -> None:
    g = graph(x=np.zeros((4, 3)), y=[0, 2, -1, 0], train_mask=[True, False, False, False])
    assert (g.num_nodes, g.num_edges, g.num_self_loops) == (4, 2, 1)
    assert (g.num_features, g.num_classes, g.num_splits, g.num_components) == (3, 3, 1, 2)
    assert not g.is_weighted


def test_counts_of_a_bare_graph() -> None:
    g = graph()
    assert (g.num_features, g.num_classes, g.num_splits) == (0, 0, 0)


def test_no_node_labelled_is_no_class() -> None:
    assert graph(y=[-1, -1, -1, -1]).num_classes == 0


def test_class_names_count_classes_nobody_has() -> None:
    assert graph(y=[0, 0, 0, 0], class_names=("a", "b", "c")).num_classes == 3


def test_repr_says_what_there_is() -> None:
    assert repr(graph()) == "Graph('graph', nodes=4, edges=2, self_loops=1)"
    g = Graph(csr_array(2 * ADJACENCY), x=np.eye(4), y=[0, 1, 1, 0], name="own")  # type: ignore[arg-type]
    expected = "Graph('own', nodes=4, edges=2, self_loops=1, weighted=True, features=4, classes=2)"
    assert repr(g) == expected


def test_types_are_the_promised_ones() -> None:
    g = graph(x=np.eye(4, dtype=int), y=np.zeros((4, 1), np.int8), test_mask=np.ones(4, bool))
    assert isinstance(g.adjacency, csr_array)
    assert g.adjacency.dtype == np.float64
    assert g.x.dtype == np.float32
    assert (g.y.dtype, g.y.shape) == (np.int64, (4,))
    assert (g.test_mask.dtype, g.test_mask.shape) == (np.bool_, (4, 1))


def test_sparse_features_stay_sparse() -> None:
    g = graph(x=coo_array(np.diag([1.0, 2.0, 0.0, 3.0])))
    assert isinstance(g.x, csr_array)
    assert (g.x.dtype, g.x.nnz) == (np.float32, 3)


def test_adjacency_is_stored_sorted_without_repeats_and_zeros_and_the_input_is_left_alone() -> None:
    indptr, indices = np.array([0, 3, 4]), np.array([1, 1, 0, 0])
    given = csr_array((np.array([1.0, 2.0, 0.0, 3.0]), indices, indptr), shape=(2, 2))
    g = Graph(given)
    assert g.adjacency.has_canonical_format
    np.testing.assert_array_equal(g.adjacency.toarray(), [[0, 3], [3, 0]])
    assert g.adjacency.nnz == 2
    np.testing.assert_array_equal(given.data, [1, 2, 0, 3])


def test_a_mask_of_one_split_goes_with_every_split_of_the_others() -> None:
    test = np.array([True, False, False, True])
    g = graph(train_mask=np.zeros((4, 3), bool), test_mask=test)
    assert g.num_splits == 3
    np.testing.assert_array_equal(g.test_mask, np.stack([test] * 3, axis=1))


@pytest.mark.parametrize("kind", [bool, np.uint8, float])
def test_a_mask_may_hold_0_and_1(kind: type) -> None:
    g = graph(test_mask=np.array([1, 0, 0, 1]).astype(kind))
    assert g.test_mask[:, 0].tolist() == [True, False, False, True]


def test_the_last_of_256_classes_may_be_a_byte() -> None:
    g = Graph(csr_array((256, 256)), y=np.arange(256, dtype=np.uint8))
    assert g.y.tolist() == list(range(256))


def test_a_graph_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        graph().name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": [[1.0], [2.0], [np.inf], [0.0]]}, r"x\[2, 0\] is inf"),
        ({"feature_words": {"city": ("Graz",)}}, "names 'city', which is not a dense column of x"),
        ({"x": [[1.0], [np.inf], [0.0], [0.0]]}, r"x\[1, 0\] is inf"),
        ({"x": [[1.0], [1e39], [0.0], [0.0]]}, r"x\[1, 0\] is 1e\+39, .* float32"),
        ({"x": csr_array([[0, 1.0], [0, 0], [0, 0], [np.nan, 0]])}, r"x\[3, 0\] is nan"),
        ({"x": np.zeros((3, 2))}, r"x must have shape \[4, features\], not \[3, 2\]"),
        ({"x": np.zeros(4)}, r"x must have shape \[4, features\], not \[4\]"),
        ({"x": np.full((4, 1), "a")}, "x must hold numbers, not <U1"),
        ({"x": np.full((4, 1), None)}, "x must hold numbers, not object"),
        ({"x": csr_array(np.full((4, 1), 1j))}, "x must hold numbers, not complex128"),
        ({"x": [[1.0], [2.0, 3.0], [0.0], [0.0]]}, "x cannot be read as an array of numbers"),
        ({"y": [0, 1, 0]}, r"y must have shape \[4\] or \[4, targets\], not \[3\]"),
        ({"y": np.zeros((4, 0))}, r"y must have shape .*, not \[4, 0\]"),
        ({"y": [0.5, 1.0, np.inf, 1.0]}, r"y\[2, 0\] is inf, but targets must be finite"),
        ({"y": ["a", "b", "a", "b"]}, "y must hold numbers, not <U1; .* np.unique.* numbers words"),
        ({"y": np.array([0, 1, -1, 2]).astype(np.uint8)}, r"y\[2\] is 255, .* store y as int64"),
        ({"y": np.zeros((4, 2)), "class_names": ("a",)}, "y has 2 columns, but class_names has 1"),
        ({"y": [0, 1, -2, 0]}, r"y\[2\] is -2, .* numbers to predict are floats"),
        ({"y": [0, 1, 2, 0], "class_names": ("a", "b")}, r"y\[2\] is 2, .* 2 class_names"),
        ({"val_mask": np.ones(5, bool)}, r"val_mask must have shape \[4\] or .*, not \[5\]"),
        ({"val_mask": np.array(True)}, r"val_mask must have shape .*, not \[\]"),
        ({"test_mask": [0, 1, 2, 3]}, r"test_mask must hold booleans, .* np.isin\(range\(4\), num"),
        ({"test_mask": [2, 3]}, r"test_mask must have shape .* np.isin\(range\(4\), numbers\)"),
        (
            {"train_mask": np.ones((4, 2), bool), "val_mask": np.ones((4, 3), bool)},
            "train_mask has 2 splits where another mask has 3",
        ),
        ({"node_ids": ("a", "b")}, "node_ids must have 4 entries, not 2"),
        ({"node_ids": ("a", "b", "c", "b")}, "node_ids has 'b' more than once"),
        ({"class_names": ("a", "a")}, "class_names has 'a' more than once"),
        ({"feature_names": ("age",)}, "feature_names must have 0 entries, not 1"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graph(**fields)


@pytest.mark.parametrize(
    ("adjacency", "message"),
    [
        (ADJACENCY, "adjacency must be a SciPy sparse array, not ndarray"),
        (csr_array((2, 3)), r"adjacency must be square, but its shape is \[2, 3\]"),
        (coo_array(np.ones(3)), r"adjacency must be square, but its shape is \[3\]"),
        (csr_array((0, 0)), "the graph has no nodes"),
        (csr_array([[1j]]), "adjacency must hold real numbers, not complex128"),
        (csr_array([[0.0, 1.0], [2.0, 0.0]]), r"not symmetric: \[0, 1\] is 1.0, \[1, 0\] is 2.0"),
        (csr_array([[0.0, 0.0], [2.0, 0.0]]), r"not symmetric: \[0, 1\] is 0.0, \[1, 0\] is 2.0"),
        (csr_array([[0.0, -1.0], [-1.0, 0.0]]), r"adjacency\[0, 1\] is -1.0"),
        (csr_array([[0.0, 0.0], [0.0, np.nan]]), r"adjacency\[1, 1\] is nan"),
        (csr_array([[np.inf]]), r"adjacency\[0, 0\] is inf"),
        (csr_array(np.full((2, 2), 1e308)), "sum overflows float64"),
    ],
)
def test_bad_adjacency_is_named(adjacency: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph(adjacency)  # type: ignore[arg-type]


def test_indices_outside_a_hand_made_matrix_are_refused() -> None:
    broken = csr_array((np.ones(1), np.array([0]), np.array([0, 1, 1])), shape=(2, 2))
    broken.indices[0] = 7
    with pytest.raises(GraphError, match=r"adjacency is not a valid sparse array: .* < 2"):
        Graph(broken)


def test_the_room_imports_neither_torch_nor_networkx() -> None:
    code = "import sys, specformer.graphs; print({'torch', 'networkx'} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


RING = csr_array(np.roll(np.eye(4), 1, axis=0) + np.roll(np.eye(4), -1, axis=0))
GRAPH = Graph(RING, x=np.arange(8).reshape(4, 2), y=[0, 1, 0, 1])
SET = GraphSet([2, 1], [1, 0], [[0], [1]], node_feat=[[0], [1], [2]], y=[[0.5], [np.nan]])


@pytest.mark.parametrize(
    "change",
    [
        {"adjacency": 2.0 * RING},
        {"adjacency": csr_array((4, 4))},
        {"x": None},
        {"x": csr_array(GRAPH.x)},
        {"x": np.arange(8).reshape(4, 2)[::-1]},
        {"y": [0, 1, 0, -1]},
    ],
    ids=["weights", "no edges", "no features", "sparse", "order", "label"],
)
def test_any_change_of_a_graph_shows(change: dict) -> None:
    assert replace(GRAPH, **change).fingerprint != GRAPH.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"num_nodes": [1, 2], "num_edges": [0, 1]},
        {"node_feat": [[0], [1], [3]]},
        {"edge_feat": [[1]]},
        {"x": np.zeros((3, 1))},
        {"y": [[0.5], [0.0]]},
    ],
    ids=["sizes", "atoms", "bonds", "numbers", "target"],
)
def test_any_change_of_many_graphs_shows(change: dict) -> None:
    assert replace(SET, **change).fingerprint != SET.fingerprint


def test_names_and_memory_do_not_matter() -> None:
    turned = replace(GRAPH, x=np.asfortranarray(GRAPH.x), name="other", node_ids=tuple("abcd"))
    assert turned.fingerprint == GRAPH.fingerprint
    assert replace(SET, name="other", ids=("a", "b")).fingerprint == SET.fingerprint
