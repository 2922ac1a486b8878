"""A graph in parts, read by one process; tests of workers read it by several."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import read_table, write_table
from tests.datasets import parts_workers

from specformer.datasets import csbm
from specformer.datasets.parts import is_in_parts, read_parts
from specformer.errors import GraphError
from specformer.graphs import as_adjacency

GRAPH = csbm(0.3, num_nodes=62, num_features=10, seed=1)
DRAW = np.random.default_rng(0)
EDGES = DRAW.integers(0, 62, (2, 200))  # repeats, self-loops and both directions among them
WEIGHTS = DRAW.uniform(0, 2, 200)


MASK = DRAW.random(62) < 0.5


def write_parts(folder: Path, count: int = 3, *, weighted: bool = False, **changes: object) -> None:
    """Nodes in order, edges in any."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        first, last = 62 * number // count, 62 * (number + 1) // count
        arrays = {"x": GRAPH.x[first:last], "y": GRAPH.y[first:last], "num_nodes": 62}
        arrays |= {"first": first, "edge_index": EDGES[:, number::count]}
        arrays["train_mask"] = MASK[first:last]
        if weighted:
            arrays["edge_weight"] = WEIGHTS[number::count]
        np.savez(folder / f"part-{number}.npz", **{**arrays, **changes})


def write_tables(
    folder: Path, count: int = 3, *, weighted: bool = False, **changes: object
) -> None:
    """The same as Parquet, in groups of seven rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        first, last = 62 * number // count, 62 * (number + 1) // count
        nodes = {f"f{place}": column[first:last] for place, column in enumerate(GRAPH.x.T)}
        nodes |= {"y": GRAPH.y[first:last], "train_mask": MASK[first:last]}
        nodes |= {key: value for key, value in changes.items() if key not in ("source", "weight")}
        write_table(pa.table(nodes), folder / f"nodes-{number}.parquet", row_group_size=7)
    for number in range(2):
        edges = {"source": EDGES[0, number::2], "target": EDGES[1, number::2]}
        if weighted:
            edges["weight"] = WEIGHTS[number::2]
        edges |= {key: value for key, value in changes.items() if key in ("source", "weight")}
        write_table(pa.table(edges), folder / f"edges-{number}.parquet")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("write", [write_parts, write_tables])
def test_parts_are_the_graph(tmp_path: Path, write: Callable[..., None], weighted: bool) -> None:
    assert not is_in_parts(tmp_path)
    write(tmp_path, weighted=weighted)
    assert is_in_parts(tmp_path)
    graph = read_parts(tmp_path)
    expected = as_adjacency(EDGES, 62, WEIGHTS if weighted else None)
    np.testing.assert_allclose(graph.adjacency.toarray(), expected.toarray())
    np.testing.assert_array_equal(graph.x, GRAPH.x)
    np.testing.assert_array_equal(graph.y, GRAPH.y)
    np.testing.assert_array_equal(graph.train_mask[:, 0], MASK)


def test_other_files_are_another_graph(tmp_path: Path) -> None:
    write_parts(tmp_path)
    before = read_parts(tmp_path).fingerprint
    assert read_parts(tmp_path).fingerprint == before
    write_parts(tmp_path, weighted=True)
    assert read_parts(tmp_path).fingerprint != before


@pytest.mark.parametrize(
    ("write", "change", "why"),
    [
        (write_parts, {"edge_index": [[0], [62]]}, "edge_index.* outside 0..61"),
        (write_parts, {"edge_index": EDGES.T}, "transpose a list of pairs"),
        (write_parts, {"edge_index": [[0.5], [1.0]]}, "integers"),
        (write_parts, {"num_nodes": [62, 62]}, "num_nodes must be one number"),
        (write_parts, {"num_nodes": 10**15}, "nodes need about .* of memory"),
        (write_parts, {"first": 0}, "must be 0 in the first file and rise"),
        (write_parts, {"x": 1.0}, "x must have a row for each node"),
        (write_parts, {"y": [1, 2]}, "y has 6 rows for the nodes 0 to 61"),
        (write_parts, {"edge_weight": [-1.0], "edge_index": [[0], [1]]}, "not negative"),
        (write_tables, {"source": [62] * 100}, "edge_index.* outside 0..61"),
        (write_tables, {"weight": [-1.0] * 100}, "not negative"),
    ],
)
def test_parts_that_do_not_fit(
    tmp_path: Path, write: Callable[..., None], change: dict, why: str
) -> None:
    write(tmp_path, **change)
    with pytest.raises(GraphError, match=why):
        read_parts(tmp_path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_nodes": 63}, "num_nodes, that of the whole graph, differs"),
        ({"edge_weight": np.ones(66)}, "only some files have weights of edges"),
    ],
)
def test_parts_that_do_not_agree(tmp_path: Path, change: dict, why: str) -> None:
    write_parts(tmp_path)
    arrays = dict(np.load(tmp_path / "part-2.npz"))
    np.savez(tmp_path / "part-2.npz", **{**arrays, **change})
    with pytest.raises(GraphError, match=why):
        read_parts(tmp_path)


def test_workers_agree_on_what_their_files_hold(tmp_path: Path) -> None:
    """Each of two workers sees one of two files; what is wrong is told by both."""
    changes: dict[str, dict[str, object]] = {
        "columns of x": {"x": np.zeros((31, 4))},
        "no labels": {"y": None},
        "some labels in fractions": {"y": np.where(MASK[31:], np.nan, GRAPH.y[31:])},
        "weights": {"edge_weight": np.ones(1), "edge_index": [[40], [41]]},
    }
    for name, change in changes.items():
        folder = tmp_path / name
        write_parts(folder, 2, edge_index=np.array([[0], [1]]))
        arrays = dict(np.load(folder / "part-1.npz"), edge_index=[[40], [41]])
        kept = {key: value for key, value in {**arrays, **change}.items() if value is not None}
        np.savez(folder / "part-1.npz", **kept)
    mixed = tmp_path / "order of columns"
    write_tables(mixed, 2)
    table = read_table(mixed / "nodes-1.parquet")
    write_table(table.select([*reversed(table.column_names)]), mixed / "nodes-1.parquet")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, "--nproc-per-node=2", "-m", parts_workers.__name__, str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert one == other
    kind, y = one.pop("some labels in fractions")
    assert kind == "float32"
    np.testing.assert_array_equal(
        np.ravel(y), [*GRAPH.y[:31], *changes["some labels in fractions"]["y"]]
    )
    for name, told in {
        "columns of x": "x has different numbers of columns in its files",
        "no labels": "only some files have y; add it to all files",
        "weights": "only some files have weights of edges; add them to all files",
        "order of columns": "files of nodes have different columns; use the same",
    }.items():
        assert one[name] == f"{tmp_path / name}: {told}."


def test_missing_numbers_of_a_table_are_unknown(tmp_path: Path) -> None:
    write_tables(tmp_path, 1, age=pa.array([None, *range(20, 81)], pa.int64()))
    graph = read_parts(tmp_path)
    age = np.asarray(graph.x)[:, graph.feature_names.index("age")]
    assert np.isnan(age[0])
    assert age[1:].tolist() == [*range(20, 81)]


@pytest.mark.parametrize("odd", [np.nan, 2.0])
def test_masks_hold_zeros_and_ones(tmp_path: Path, odd: float) -> None:
    write_parts(tmp_path, 1, train_mask=np.where(MASK, 1.0, odd))
    with pytest.raises(GraphError, match="train_mask must hold booleans, or 0 and 1"):
        read_parts(tmp_path)


def test_damaged_tables(tmp_path: Path) -> None:
    """With checksums of pages, any flipped bit is noticed or in no page."""
    write_tables(tmp_path)
    truth, path = read_parts(tmp_path), tmp_path / "edges-0.parquet"
    edges = {"source": EDGES[0, ::2], "target": EDGES[1, ::2]}
    write_table(pa.table(edges), path, write_page_checksum=True)
    content = path.read_bytes()
    for place in range(0, len(content), 5):
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with suppress(GraphError):
            assert (read_parts(tmp_path).adjacency != truth.adjacency).nnz == 0


def test_tables_that_do_not_fit(tmp_path: Path) -> None:
    write_tables(tmp_path)
    path = tmp_path / "nodes-1.parquet"
    write_table(pa.table({"town": ["Ulm"] * 21}), path)
    with pytest.raises(GraphError, match="column 'town' holds string, not numbers"):
        read_parts(tmp_path)
    write_table(pa.table({"f0": [1.0] * 21, "y": [0] * 21, "train_mask": [True] * 21}), path)
    with pytest.raises(GraphError, match="files of nodes have different columns"):
        read_parts(tmp_path)
    write_table(pa.table({"from": [1]}), tmp_path / "edges-0.parquet")
    with pytest.raises(GraphError, match="has no column 'source'"):
        read_parts(tmp_path)


def test_no_parts(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="no files part"):
        read_parts(tmp_path)
