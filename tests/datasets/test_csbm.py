"""Generated graphs: what the model's formulas promise, measured on draws of it."""

from __future__ import annotations

import numpy as np
import pytest

from specformer.datasets import csbm
from specformer.errors import ConfigError
from specformer.graphs import Graph


def same_class(graph: Graph) -> float:
    rows, columns = graph.adjacency.nonzero()
    return float((graph.y[rows] == graph.y[columns]).mean())


def mean_degree(graph: Graph) -> float:
    return graph.adjacency.nnz / graph.num_nodes


@pytest.mark.parametrize("degree", [4.0, 8.0])
@pytest.mark.parametrize("homophily", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_degree_and_homophily_follow_the_formulas(homophily, degree):
    graph = csbm(homophily, num_nodes=1200, num_features=4, degree=degree)
    # About 2,400 edges or more: both figures lie within 4 standard deviations of what is expected.
    assert mean_degree(graph) == pytest.approx(degree, rel=0.1)
    strength = np.clip(np.sqrt(5.25) * np.sin(homophily * np.pi / 2), -(degree**0.5), degree**0.5)
    assert same_class(graph) == pytest.approx((1 + strength / degree**0.5) / 2, abs=0.05)


def test_classes_are_balanced_and_the_graph_is_simple():
    graph = csbm(0.5, num_nodes=300, num_features=7)
    assert np.bincount(graph.y).tolist() == [150, 150]
    adjacency = graph.adjacency.toarray()
    np.testing.assert_array_equal(adjacency, adjacency.T)
    assert set(np.unique(adjacency)) == {0.0, 1.0}
    assert not adjacency.diagonal().any()
    assert graph.x.shape == (300, 7)
    assert graph.x.dtype == np.float32


def test_features_tell_the_classes_where_the_graph_does_not():
    def separation(homophily: float) -> float:
        graph = csbm(homophily, num_nodes=2000, num_features=20)
        return float(
            np.linalg.norm(graph.x[graph.y == 0].mean(axis=0) - graph.x[graph.y == 1].mean(axis=0))
        )

    def expected(homophily: float) -> float:
        mu = np.sqrt(5.25 * 2000 / 20) * np.cos(homophily * np.pi / 2)
        return 2 * np.sqrt(mu / 2000)  # times |u|, which is near 1

    assert separation(0.0) == pytest.approx(expected(0.0), rel=0.5)
    # Noise alone: 20 means of 2,000 numbers of variance 1/20 leave about 2 / sqrt(2000).
    assert separation(1.0) < 0.08 < separation(0.0)


def test_seeds():
    one, again, other = (csbm(0.3, num_nodes=100, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.adjacency.toarray(), again.adjacency.toarray())
    np.testing.assert_array_equal(one.x, again.x)
    assert (one.adjacency != other.adjacency).nnz > 0
    assert not np.array_equal(one.x, other.x)


@pytest.mark.parametrize("homophily", [-1.01, 1.5, float("nan")])
def test_bad_homophily(homophily):
    with pytest.raises(ConfigError, match=r"homophily=.*\[-1, 1\]"):
        csbm(homophily)


@pytest.mark.parametrize("num_nodes", [0, 1, 7])
def test_odd_number_of_nodes(num_nodes):
    with pytest.raises(ConfigError, match=f"num_nodes={num_nodes} must be even"):
        csbm(0.5, num_nodes=num_nodes)
