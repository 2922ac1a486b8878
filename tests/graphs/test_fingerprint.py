"""The same for the same data, whatever their memory looks like; another for any change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from specformer.graphs import Graph, GraphSet

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
