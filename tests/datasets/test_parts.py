"""A graph in parts, read by one process; tests of workers read it by several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specformer.datasets import csbm
from specformer.datasets.parts import parts_in, read_rows
from specformer.errors import GraphError
from specformer.graphs import as_adjacency
from specformer.training.engine.distributed import Share

GRAPH = csbm(0.3, num_nodes=62, num_features=10, seed=1)
DRAW = np.random.default_rng(0)
EDGES = DRAW.integers(0, 62, (2, 200))  # repeats, self-loops and both directions among them
WEIGHTS = DRAW.uniform(0, 2, 200)


def write_parts(folder: Path, count: int = 3, *, weighted: bool = False, **changes: object) -> None:
    """Nodes in order, edges in any."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        first, last = 62 * number // count, 62 * (number + 1) // count
        arrays = {"x": GRAPH.x[first:last], "y": GRAPH.y[first:last], "num_nodes": 62}
        arrays |= {"first": first, "edge_index": EDGES[:, number::count]}
        if weighted:
            arrays["edge_weight"] = WEIGHTS[number::count]
        np.savez(folder / f"part-{number}.npz", **{**arrays, **changes})


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_are_the_graph(tmp_path: Path, weighted: bool) -> None:
    write_parts(tmp_path, weighted=weighted)
    assert parts_in(tmp_path)[1] == 62
    own = read_rows(tmp_path, Share(count=62))
    expected = as_adjacency(EDGES, 62, WEIGHTS if weighted else None)
    np.testing.assert_allclose(own.adjacency.toarray(), expected.toarray())
    np.testing.assert_array_equal(own.nodes["x"], GRAPH.x)
    np.testing.assert_array_equal(own.nodes["y"], GRAPH.y)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_nodes": 63}, "has 63 nodes, and the processes share 62"),
        ({"edge_index": [[0], [62]]}, "node that is not in 0..61"),
        ({"y": [1, 2]}, "y has 6 rows for the nodes 0 to 61"),
        ({"edge_weight": [-1.0], "edge_index": [[0], [1]]}, "not negative"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, change: dict, why: str) -> None:
    write_parts(tmp_path, **change)
    with pytest.raises(GraphError, match=why):
        read_rows(tmp_path, Share(count=62))


def test_no_parts(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="no files part"):
        parts_in(tmp_path)
