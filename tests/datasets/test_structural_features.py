"""Features computed from the edges, against NetworkX and powers of a dense matrix."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from specformer.datasets.structural_features import STRUCTURAL, with_structural_features
from specformer.graphs import Graph, as_graph


@pytest.mark.parametrize("held", [2**24, 50])
def test_they_are_networkx_and_the_powers_of_the_walk(held: int, monkeypatch) -> None:
    monkeypatch.setattr(
        "specformer.datasets.structural_features._HELD", held
    )  # all rows at once, or few
    source = nx.karate_club_graph()  # with weights
    source.add_node("alone")
    graph = as_graph(source)
    made = with_structural_features(graph)
    assert made.feature_names == STRUCTURAL
    a = graph.adjacency.toarray()
    degree = a.sum(axis=1)
    walk = a / np.maximum(degree, 1)[:, None]
    expected = [np.log1p(degree), list(nx.clustering(source).values())]
    expected += [np.diag(np.linalg.matrix_power(walk, k)) for k in (2, 3, 4)]
    np.testing.assert_allclose(made.x, np.stack(expected, axis=1), rtol=1e-5, atol=1e-7)


def test_a_loop_is_no_neighbour_and_numbering_does_not_matter() -> None:
    a = np.array([[1, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]], dtype=float)
    order = np.array([2, 0, 3, 1])
    made = with_structural_features(Graph(sp.csr_array(a)))
    np.testing.assert_allclose(made.x[:, 1], [1, 1, 1 / 3, 0], rtol=1e-6)
    turned = with_structural_features(Graph(sp.csr_array(a[np.ix_(order, order)])))
    np.testing.assert_allclose(turned.x, made.x[order], rtol=1e-6)
