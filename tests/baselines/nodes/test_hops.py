from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path

from specformer.baselines.nodes import propagation
from specformer.baselines.nodes.propagation import hop_distances, neighbour_pattern, two_hop_pattern
from specformer.errors import ConfigError


def ring(num_nodes: int) -> sp.csr_array:
    step = sp.eye_array(num_nodes, format="csr")[np.roll(np.arange(num_nodes), 1)]
    return sp.csr_array(step + step.T)


def test_two_hops_are_what_the_distances_say(graph):
    graph.weights[0, 0] = 1.0
    expected = (graph.distances == 2).numpy()
    pattern = two_hop_pattern(sp.csr_array(graph.weights))
    assert pattern.nnz == expected.sum()
    assert (pattern.toarray() == expected).all()


def test_neighbours_leave_out_loops_and_stored_zeros():
    adjacency = sp.csr_array(([2.0, 0.0, 0.0, 3.0, 3.0], ([0, 0, 1, 1, 2], [0, 1, 0, 2, 1])))
    assert neighbour_pattern(adjacency).toarray().tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("limit", [1, 3, 39, 50])
@pytest.mark.parametrize("columns", [1024, 64], ids=["one_block", "blocks"])
def test_distances_are_scipys(monkeypatch, limit, columns):
    monkeypatch.setattr(propagation, "_COLUMNS", columns)
    lonely = sp.csr_array((1, 1))
    adjacency = sp.csr_array(sp.block_diag([ring(81), ring(4), lonely]))
    exact = shortest_path(adjacency, unweighted=True)
    expected = np.where(np.isinf(exact), limit + 1, np.minimum(exact, limit))
    assert (hop_distances(adjacency, limit) == expected).all()


def test_too_many_pairs_are_refused_with_the_figure():
    with pytest.raises(ConfigError, match=r"20,001 nodes would be 400,040,001 numbers"):
        hop_distances(sp.csr_array((20_001, 20_001)), 5)


def test_too_many_two_hop_entries_are_refused_with_the_figure(monkeypatch):
    monkeypatch.setattr(propagation, "MAX_TWO_HOP_ENTRIES", 35)
    with pytest.raises(ConfigError, match="may have 36 entries, more than 35"):
        two_hop_pattern(ring(9))
