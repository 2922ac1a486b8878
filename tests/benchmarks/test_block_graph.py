"""Large generated graphs: exactly the edges asked for, and the statistics they promise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.block_graph import block_graph
from specformer.errors import ConfigError


@pytest.mark.parametrize("homophily", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("num_nodes", "num_classes"), [(3000, 2), (3001, 5)])
def test_edges_and_homophily(num_nodes: int, num_classes: int, homophily: float) -> None:
    graph = block_graph(num_nodes, 20_000, num_classes=num_classes, homophily=homophily)
    adjacency = graph.adjacency
    assert graph.num_nodes == num_nodes
    assert adjacency.nnz == 40_000
    assert set(np.unique(adjacency.data)) == {1.0}
    assert not adjacency.diagonal().any()
    assert (adjacency != adjacency.T).nnz == 0
    rows, columns = adjacency.nonzero()
    same = float(np.mean(graph.y[rows] == graph.y[columns]))
    assert same == pytest.approx(homophily, abs=0.02)  # about 20,000 draws: five deviations
    sizes = np.bincount(graph.y)
    assert sizes.max() - sizes.min() <= 1


def test_no_node_is_favoured() -> None:
    graph = block_graph(4000, 80_000, num_classes=4, homophily=0.5)
    degrees = np.asarray(graph.adjacency.sum(axis=1)).ravel()
    assert degrees.mean() == 40.0
    assert degrees.var() == pytest.approx(40.0, rel=0.15)  # almost Poisson
    halves = degrees[:2000].mean(), degrees[2000:].mean()
    assert halves[0] == pytest.approx(halves[1], abs=0.8)


def test_features_are_centred_on_their_class() -> None:
    graph = block_graph(6000, 1000, num_classes=3, num_features=5, separation=2.0)
    assert graph.x.dtype == np.float32
    for label in range(3):
        own = graph.x[graph.y == label]
        assert np.linalg.norm(own.mean(axis=0)) == pytest.approx(2.0, abs=0.2)
        np.testing.assert_allclose(own.std(axis=0), 1.0, atol=0.1)


def test_seeds() -> None:
    one, again, other = (block_graph(200, 300, seed=seed) for seed in (1, 1, 2))
    assert (one.adjacency != again.adjacency).nnz == 0
    np.testing.assert_array_equal(one.x, again.x)
    assert (one.adjacency != other.adjacency).nnz > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes=0"),
        ({"num_classes": 101}, "num_classes=101"),
        ({"homophily": 1.5}, r"homophily=1.5 must lie in \[0, 1\]"),
        ({"num_edges": 10_000}, "num_edges=10,000 must lie between 0 and"),
    ],
)
def test_what_cannot_be_drawn(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        block_graph(**{"num_nodes": 100, "num_edges": 10, **options})
