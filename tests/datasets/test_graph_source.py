"""What a user types for a graph."""

from __future__ import annotations

import numpy as np
import pytest

from specformer.datasets import grid_graph, grid_mirrors
from specformer.datasets.graph_source import graph_source
from specformer.errors import GraphError


def test_a_grid():
    graph, mirrors = graph_source("3x4")
    np.testing.assert_array_equal(graph.adjacency.toarray(), grid_graph(3, 4).adjacency.toarray())
    for mirror, expected in zip(mirrors, grid_mirrors(3, 4), strict=True):
        np.testing.assert_array_equal(mirror, expected)


def test_a_folder_has_no_known_mirrors(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    graph, mirrors = graph_source(str(tmp_path))
    assert graph.node_ids == ("a", "b", "c")
    assert mirrors == ()


@pytest.mark.parametrize(
    "source", ["3x", "x4", "3x4x5", "3 x 4", "-3x4", "nowhere.npz", "0x4", "99999x99999"]
)
def test_anything_else_is_refused(source):
    with pytest.raises(GraphError):
        graph_source(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("crao", "crao: neither a file or folder nor a data set; did you mean 'cora'"),
        ("zinc", "zinc: a set of many graphs"),
        ("0x4", "0x4: the grid has no nodes"),
    ],
)
def test_what_is_wrong_is_named(source, message):
    with pytest.raises(GraphError, match=message):
        graph_source(source)


def test_a_data_set_by_name(shared_data):
    graph, mirrors = graph_source("cora", shared_data)
    assert (graph.num_nodes, mirrors) == (2708, ())
