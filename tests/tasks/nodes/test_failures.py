"""Where a classifier fails, counted by hand."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from specformer.graphs import Graph
from specformer.tasks.nodes.failures import drawing, drawn_part, failures, worst_nodes


def star() -> Graph:
    """Node 0 in the middle of 1, 2, 3; node 4 alone with 5; node 6 without edges."""
    rows, columns = np.array([[0, 1], [0, 2], [0, 3], [4, 5]]).T
    half = sp.coo_array((np.ones(4), (rows, columns)), shape=(7, 7))
    y = np.array([0, 0, 1, -1, 1, 1, 0])
    return Graph(sp.csr_array(half + half.T), y=y, class_names=("a", "b"))


#: Of two runs the chance of class b for each node.
CHANCES = np.array(
    [[0.92, 0.2, 0.62, 0.5, 0.35, 0.9, 0.08], [0.1, 0.18, 0.28, 0.5, 0.6, 0.9, 0.72]]
)
BOTH = np.stack([1 - CHANCES, CHANCES], axis=-1)
TESTED = np.array([[1, 0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 0, 1]], dtype=bool)


def test_accuracy_by_degree_homophily_and_confidence():
    tables = failures(star(), BOTH, TESTED)

    # Run 1 tests 0 (wrong), 2 (right), 4 (wrong), 6 (right); run 2 tests 1 (right), 2, 6 (wrong).
    assert tables["by_degree"].tolist() == [[0, 1, 2, 1], [1, 2, 4, 2], [3, 4, 1, 0]]
    # Neighbours of its class: node 0 one of two labelled, 1 all, 2 none, 4 all, 6 has no neighbour.
    shares = tables["by_homophily"]
    np.testing.assert_allclose(shares, [[0, 0.2, 2, 1], [0.4, 0.6, 1, 0], [0.8, 1, 2, 1]])
    sure = tables["calibration"]
    np.testing.assert_allclose(sure[:, :4], [
        [0.6, 0.7, 2, 1], [0.7, 0.8, 2, 0], [0.8, 0.9, 1, 1], [0.9, 1.0, 2, 1],
    ])  # fmt: skip
    np.testing.assert_allclose(sure[:, 4], [0.62 + 0.65, 0.72 + 0.72, 0.82, 0.92 + 0.92])


def test_the_worst_nodes_come_with_their_neighbours():
    worst = worst_nodes(star(), BOTH[0], TESTED[0])

    assert [each["node"] for each in worst] == [0, 4]
    assert worst[0] | {"chance": 0} == {
        "node": 0, "class": "a", "predicted": "b", "chance": 0, "neighbours": {"a": 1, "b": 1},
    }  # fmt: skip
    assert round(worst[0]["chance"], 9) == 0.08


def test_a_drawing_has_the_edges_between_its_nodes():
    graph = star()
    nodes = np.array([0, 2, 3, 4])

    drawn = drawing(graph, nodes, BOTH[0], TESTED[0])

    assert drawn["drawn/edges"].tolist() == [[0, 1], [0, 2]]
    assert drawn["drawn/labels"].tolist() == [0, 1, -1, 1]
    np.testing.assert_allclose(drawn["drawn/chances"], BOTH[0][nodes], rtol=1e-6)


def test_a_large_graph_is_drawn_around_its_start():
    ring = sp.csr_array(sp.coo_array((np.ones(5000), (np.arange(5000), np.arange(1, 5001) % 5000))))
    graph = Graph(sp.csr_array(ring + ring.T), y=np.zeros(5000, dtype=int))

    nodes = drawn_part(graph, [1000])

    assert nodes.tolist() == list(range(nodes[0], nodes[-1] + 1))
    assert len(nodes) == 320
    assert abs(int(nodes.mean()) - 1000) <= 1
    assert drawn_part(star(), []).tolist() == list(range(7))
