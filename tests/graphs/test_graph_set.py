"""Sets of many graphs: bonds once, checked by graph number, cut without changing a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from specformer.errors import GraphError
from specformer.graphs import GraphSet
from specformer.graphs.graph_set import ragged, runs_within, starts

TWO: dict[str, Any] = {
    "num_nodes": [3, 1, 2],
    "num_edges": [2, 0, 1],
    "edge_index": [[0, 1, 0], [1, 2, 1]],
    "node_feat": [[6], [6], [8], [7], [300], [1]],
    "edge_feat": [[1, 0], [2, 0], [3, 1]],
    "y": [[0.5, np.nan], [1.0, 0.0], [np.nan, 2.0]],
}


def changed(**fields: Any) -> GraphSet:
    return GraphSet(**(TWO | fields))


def test_a_set_says_what_it_holds() -> None:
    graphs = changed(train_idx=[2, 0], test_idx=[1], name="tiny")
    text = "GraphSet('tiny', graphs=3, nodes=6, edges=3, tasks=2, train=2, test=1)"
    assert repr(graphs) == text
    assert len(graphs) == 3
    assert graphs.node_start.tolist() == [0, 3, 4, 6]
    assert graphs.edge_start.tolist() == [0, 2, 2, 3]
    assert graphs.node_feat.dtype == np.int16
    assert graphs.edge_feat.dtype == np.uint8


def test_a_bond_in_both_directions_is_held_once() -> None:
    graphs = GraphSet(
        num_nodes=[3, 2],
        num_edges=[5, 2],
        edge_index=[[1, 0, 2, 1, 2, 0, 1], [0, 1, 1, 2, 2, 1, 0]],
        edge_feat=[[4], [4], [5], [5], [6], [7], [7]],
    )
    assert graphs.num_edges.tolist() == [3, 1]
    assert graphs.edge_index.tolist() == [[1, 2, 2, 0], [0, 1, 2, 1]]
    assert graphs.edge_feat.ravel().tolist() == [4, 5, 6, 7]


def test_without_features_every_node_and_bond_is_of_one_kind() -> None:
    graphs = GraphSet([1, 2], [0, 1], [[0], [1]])
    assert graphs.node_feat.tolist() == [[0], [0], [0]]
    assert graphs.edge_feat.tolist() == [[0]]
    assert GraphSet([2], [0], np.zeros((2, 0))).edge_index.shape == (2, 0)
    assert GraphSet([2], [0], []).edge_index.shape == (2, 0)


def test_a_subset_holds_the_graphs_asked_for_in_that_order() -> None:
    part = changed(ids=("a", "b", "c"), task_names=("p", "q")).subset([2, 0, 2])
    assert part.num_nodes.tolist() == [2, 3, 2]
    assert part.edge_index.tolist() == [[0, 0, 1, 0], [1, 1, 2, 1]]
    assert part.node_feat.ravel().tolist() == [300, 1, 6, 6, 8, 300, 1]
    assert part.edge_feat.tolist() == [[3, 1], [1, 0], [2, 0], [3, 1]]
    assert part.ids == ("c", "a", "c")
    np.testing.assert_array_equal(part.y, np.float32([[np.nan, 2], [0.5, np.nan], [np.nan, 2]]))
    with pytest.raises(GraphError, match=r"indices\[1\] is 3, but there are graphs 0\.\.2"):
        changed().subset([0, 3])


def test_numbers_of_nodes() -> None:
    graphs = changed(x=np.arange(12.0).reshape(6, 2))
    assert graphs.num_features == 2
    assert graphs.x is not None
    assert graphs.x.dtype == np.float32
    assert "features=2" in repr(graphs)
    part = graphs.subset([2, 1])
    assert part.x is not None
    assert part.x.tolist() == [[8, 9], [10, 11], [6, 7]]
    assert changed().num_features == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": [[1.0]] * 5}, r"x must have shape \[6, features\], not \[5, 1\]"),
        ({"x": [[1.0]] * 5 + [[np.nan]]}, r"x\[5, 0\] is nan, but features must be finite"),
        ({"x": np.zeros((6, 0))}, "x has no columns"),
        ({"x": sp.csr_array(np.eye(6))}, "x of many graphs must be dense"),
        ({"num_nodes": [3, 0, 2]}, r"num_nodes\[1\] is 0, but must be at least 1"),
        ({"num_edges": [2, -1, 1]}, r"num_edges\[1\] is -1"),
        ({"num_edges": [2, 1]}, r"num_edges must have shape \[3\], not \[2\]"),
        ({"edge_index": [[0, 1, 0], [1, 2, 2]]}, r"\[1, 2\] is 2, but graph 2 has nodes 0\.\.1"),
        ({"edge_index": [[0, 1, -1], [1, 2, 1]]}, r"\[0, 2\] is -1, but graph 2 has nodes 0\.\.1"),
        ({"edge_index": [[0, 1], [1, 2]]}, r"edge_index must have shape \[2, 3\], not \[2, 2\]"),
        ({"edge_index": [[0.0, 1, 0], [1, 2, 1]]}, "edge_index must hold integers, not float64"),
        ({"node_feat": [[1]] * 5}, r"node_feat must have shape \[6, columns\], not \[5, 1\]"),
        ({"node_feat": [[-1]] + [[1]] * 5}, r"node_feat\[0, 0\] is -1, but categories are 0, 1"),
        ({"edge_feat": [[0.5], [1.0], [2.0]]}, "edge_feat must hold integers, not float64"),
        ({"y": [1.0, 2.0]}, r"y must have shape \[3, tasks\], not \[2\]"),
        ({"y": [1.0, np.inf, 2.0]}, r"y\[1, 0\] is inf"),
        ({"y": [1.0, 1e300, 2.0]}, r"y\[1, 0\] is 1e\+300"),
        ({"class_names": ("a", "b")}, "class_names need exactly one target"),
        (
            {"y": [0.0, 2.0, 1.0], "class_names": ("a", "b")},
            r"y\[1, 0\] is 2.0, but the classes are 0\.\.1",
        ),
        ({"train_idx": [0, 3]}, r"train_idx\[1\] is 3, but there are graphs 0\.\.2"),
        ({"train_idx": [0, 0]}, "train_idx names graph 0 more than once"),
        ({"train_idx": [0], "test_idx": [1, 0]}, r"test_idx\[1\] is 0, which is in another part"),
        ({"smiles": ("C",)}, "smiles must have 3 entries, not 1"),
        ({"task_names": ("p", "p")}, "task_names has 'p' more than once"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        changed(**fields)


def test_two_directions_that_disagree_are_refused() -> None:
    message = "graph 1: the bond between nodes 0 and 1 is given more than once, with different"
    with pytest.raises(GraphError, match=message):
        GraphSet([1, 2], [0, 2], [[0, 1], [1, 0]], edge_feat=[[1], [2]])


def test_a_set_of_nothing_is_refused() -> None:
    with pytest.raises(GraphError, match="the set has no graphs"):
        GraphSet([], [], [])


def test_values_that_a_model_does_not_know_are_found_by_graph() -> None:
    graphs = changed()
    assert graphs.node_cardinalities == (301,)
    assert graphs.edge_cardinalities == (4, 2)
    assert graphs.outside([301], [4, 2]).tolist() == []
    assert graphs.outside([8], [4, 2]).tolist() == [0, 2]
    assert graphs.outside([301], [4, 1]).tolist() == [2]
    assert GraphSet([1], [0], []).edge_cardinalities == (1,)
    with pytest.raises(GraphError, match="edge_feat has 2 columns where 3 are expected"):
        graphs.outside([301], [5, 6, 2])


# --- flat arrays, against loops over their pieces ------------------------------------------------


def test_pieces_lie_one_after_the_other():
    counts = np.array([2, 0, 3, 1])
    begin = starts(counts)
    assert begin.tolist() == [sum(counts[:piece]) for piece in range(5)]
    first = np.array([7, 0, 4, 9])
    one_by_one = [
        number for at, count in zip(first, counts, strict=True) for number in range(at, at + count)
    ]
    assert ragged(first, counts).tolist() == one_by_one


@pytest.mark.parametrize("longest", [None, 1, 3])
@pytest.mark.parametrize("limit", [1, 10, 40])
def test_runs_are_as_long_as_they_may_be(limit, longest):
    weights = np.random.default_rng(0).integers(1, 20, size=50)
    expected, first = [], 0
    for entry in range(1, len(weights) + 1):
        full = entry == len(weights) or weights[first : entry + 1].sum() > limit
        if full or entry - first == longest:
            expected.append((first, entry))
            first = entry
    assert list(runs_within(weights, limit, longest)) == expected


def test_an_empty_row_has_no_run():
    assert list(runs_within(np.array([], dtype=int), 5)) == []
