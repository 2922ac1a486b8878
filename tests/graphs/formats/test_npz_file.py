"""Files of one graph: written whole, read back equal, refused with the reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from specformer.errors import GraphError
from specformer.graphs import (
    Graph,
    GraphSet,
    as_graph,
    read_graph,
    read_graph_set,
    read_npz,
    write_graph_set,
    write_npz,
)

PAIR: dict[str, Any] = {"edge_index": np.array([[0, 1], [1, 2]]), "num_nodes": 3}
FIELDS = ("x", "y", "train_mask", "val_mask", "test_mask")
NAMES = ("node_ids", "class_names", "feature_names")


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "own.npz"
    np.savez(path, **arrays)
    return path


def plain(array: Any) -> Any:
    return array.toarray() if isinstance(array, csr_array) else array


GRAPHS = {
    "bare": as_graph([[0, 1], [1, 2]], num_nodes=4),
    "edgeless": as_graph([[], []], num_nodes=2),
    "weighted": as_graph([[0, 1], [1, 1]], edge_weight=[0.5, 2.0]),
    "full": Graph(
        csr_array(np.ones((3, 3))),
        x=np.array([[1.5, 0.0], [0.0, -1.0], [0.0, 0.0]], dtype=np.float32),
        y=np.array([0, -1, 1]),
        train_mask=np.array([[True, False], [False, True], [False, False]]),
        val_mask=np.zeros((3, 2), bool),
        test_mask=np.ones((3, 2), bool),
        node_ids=("ann", "bob", "çy"),
        class_names=("cat", "dog"),
        feature_names=("age", "height"),
    ),
    "sparse": Graph(csr_array((2, 2)), x=csr_array(np.array([[0, 2.5], [1, 0]], np.float32))),
    "sparse ones": Graph(csr_array((2, 2)), x=csr_array(np.array([[0, 1], [1, 1]], np.float32))),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_what_was_written_is_read(graph: Graph, tmp_path: Path) -> None:
    write_npz(tmp_path / "own.npz", graph)
    back = read_npz(tmp_path / "own.npz")
    np.testing.assert_array_equal(back.adjacency.toarray(), graph.adjacency.toarray())
    for field in FIELDS:
        before, after = getattr(graph, field), getattr(back, field)
        assert type(after) is type(before)
        np.testing.assert_array_equal(plain(after), plain(before))
    assert all(getattr(back, field) == getattr(graph, field) for field in NAMES)
    assert back.name == "own"


def test_each_edge_is_stored_once_and_needless_values_are_not(tmp_path: Path) -> None:
    graph = Graph(csr_array(np.ones((2, 2))), x=csr_array(np.eye(2, dtype=np.float32)))
    write_npz(tmp_path / "own.npz", graph)
    with np.load(tmp_path / "own.npz", allow_pickle=False) as file:
        assert file["edge_index"].tolist() == [[0, 0, 1], [0, 1, 1]]
        assert not file["directed"]
        assert {"edge_weight", "x_values"}.isdisjoint(file.files)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.npz"
    write_npz(path, GRAPHS["bare"])
    before = path.read_bytes()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        write_npz(path, GRAPHS["full"])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_schema_of_the_design(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        **PAIR,
        directed=True,
        x_indptr=[0, 1, 1, 2],
        x_indices=[1, 0],
        x_shape=[3, 2],
        y=np.array([0, -1, 1], np.int16),
        train_mask=np.array([True, False, False]),
        year=[1, 2, 3],
    )
    graph = read_npz(path)
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(graph.x.toarray(), [[0, 1], [0, 0], [1, 0]])
    assert graph.y.tolist() == [0, -1, 1]
    assert graph.train_mask.shape == (3, 1)


CSR: dict[str, Any] = {"x_indptr": [0, 1, 1, 1], "x_indices": [0], "x_shape": [3, 1]}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"num_nodes": 3}, "has no 'edge_index'"),
        ({"edge_index": [[0], [1]]}, "has no 'num_nodes'"),
        (PAIR | {"num_nodes": 2}, r"edge_index\[1, 1\] is 2, outside 0..1"),
        (PAIR | {"num_nodes": [3, 3]}, r"num_nodes must be one number, .* \[2\]"),
        (PAIR | {"num_nodes": 3.5}, "num_nodes must hold integers, not float64"),
        (PAIR | {"edge_index": [[0.0], [1.0]]}, "edge_index must hold integers, not float64"),
        (PAIR | {"edge_weight": [1.0, -1.0]}, r"edge_weight\[1\] is -1.0"),
        (PAIR | {"edge_weight": [1.0]}, r"edge_weight must have shape \[2\], not \[1\]"),
        (PAIR | {"x": [[1.0], [np.inf], [0.0]]}, r"x\[1, 0\] is inf"),
        (PAIR | {"feature_words": ["city"]}, "feature_words must hold rows of two texts"),
        (PAIR | {"x": [[1.0]]}, r"x must have shape \[3, features\], not \[1, 1\]"),
        (PAIR | {"x_indptr": [0, 0, 0, 0]}, "has sparse features but no 'x_indices'"),
        (PAIR | CSR | {"x_indices": [5]}, r"x_indices\[0\] is 5, outside 0..0"),
        (PAIR | CSR | {"x_indices": [0.5]}, "x_indices must hold integers, not float64"),
        (PAIR | CSR | {"x_indptr": [0, 1]}, "x_indptr, x_indices, x_shape are not a CSR array"),
        (PAIR | CSR | {"x_indptr": [0, 2, 1, 1]}, "x is not a valid sparse array"),
        (PAIR | CSR | {"x_shape": [3]}, r"x_shape must hold two numbers, not \[3\]"),
        (PAIR | CSR | {"x_shape": [2, 1], "x_indptr": [0, 1, 1]}, r"x must have shape \[3, feat"),
        (PAIR | CSR | {"x_values": [np.inf]}, r"x\[0, 0\] is inf"),
        (PAIR | CSR | {"x_values": ["a"]}, "not a CSR array|x must hold numbers"),
        (PAIR | CSR | {"x_values": [1.0, 2.0]}, "x_indptr, x_indices, x_shape are not a CSR"),
        (PAIR | {"y": [0, 1]}, r"y must have shape \[3\] or .*, not \[2\]"),
        (PAIR | {"test_mask": [True]}, r"test_mask must have shape \[3\] or .*, not \[1\]"),
        (PAIR | {"y": np.array([None] * 3)}, "y holds pickled Python objects"),
        (PAIR | {"node_ids": [1, 2, 3]}, "node_ids must be a row of strings, not int64"),
        (PAIR | {"edge_index": np.empty((2, 0), int), "num_nodes": 0}, "the graph has no nodes"),
    ],
)
def test_bad_files_are_named_with_the_key(
    arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, **arrays)
    with pytest.raises(GraphError, match=message) as caught:
        read_npz(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_empty_foreign_and_cut_files(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(GraphError, match=r"own.npz: there is no such file"):
        read_npz(path)
    for content in (b"", b"source,target\n", b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(GraphError, match=r"own.npz: is not an npz archive"):
            read_npz(path)
    write_npz(path, GRAPHS["full"])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(GraphError, match=r"own.npz: is not an npz archive, or only part of one"):
        read_npz(path)


def test_a_file_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.npz"
    write_npz(path, GRAPHS["full"])
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(GraphError, match=r"own.npz: is not readable"):
        read_npz(path)


def test_a_changed_byte_anywhere_is_never_another_error(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    write_npz(path, GRAPHS["full"])
    whole = path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_npz(path)
        except GraphError:
            refused += 1
    assert refused > 50  # a zip has bytes that nothing reads, such as the dates


# nodes, edges, loops, features, classes, splits: the table of the data's README.
REAL = {
    "cora": (2708, 5278, 0, 1433, 7, 10),
    "citeseer": (3327, 4552, 124, 3703, 6, 10),
    "pubmed": (19717, 44324, 0, 500, 3, 10),
    "chameleon": (2277, 31371, 50, 2325, 5, 10),
    "squirrel": (5201, 198353, 140, 2089, 5, 10),
    "chameleon-filtered": (890, 8854, 0, 2325, 5, 10),
    "squirrel-filtered": (2223, 46998, 0, 2089, 5, 10),
    "actor": (7600, 26659, 93, 932, 5, 10),
    "photo": (7650, 119081, 0, 745, 8, 0),
    "cornell5": (18660, 790777, 0, 4735, 2, 0),
    "wordnet": (117659, 183789, 0, 2739, 45, 0),
    # 1,166,243 directed edges, of which 8,444 pairs run both ways.
    "ogbn-arxiv-structure": (169343, 1166243 - 8444, 0, 0, 40, 1),
}


@pytest.mark.parametrize(("name", "counts"), REAL.items(), ids=REAL.keys())
def test_real_graphs_have_the_counts_of_their_readme(
    name: str, counts: tuple[int, ...], shared_data: Path
) -> None:
    graph = read_graph(shared_data / f"{name}.npz")
    found = (graph.num_nodes, graph.num_edges, graph.num_self_loops)
    found += (graph.num_features, graph.num_classes, graph.num_splits)
    assert found == counts
    assert graph.name == name
    assert not graph.is_weighted


def test_a_file_of_many_graphs_is_refused(shared_data: Path) -> None:
    with pytest.raises(GraphError, match=r"zinc.npz: holds many graphs, where a single"):
        read_graph(shared_data / "zinc.npz")


COUNTS: dict[str, Any] = {"num_nodes_list": [2, 1], "num_edges_list": [1, 0]}
PAIR_AND_ONE: dict[str, Any] = COUNTS | {"edge_index": [[0], [1]]}
ARRAYS = ("num_nodes", "num_edges", "edge_index", "node_feat", "edge_feat", "x", "y")
SPLITS = ("train_idx", "valid_idx", "test_idx")
TEXTS = ("ids", "smiles", "task_names", "class_names")

SETS = {
    "bare": GraphSet([2, 1], [1, 0], [[0], [1]]),
    "no bonds": GraphSet([1, 1], [0, 0], []),
    "regression": GraphSet([2, 1], [1, 0], [[0], [1]], y=[[0.5, np.nan], [-1.0, 1.0]]),
    "binary": GraphSet([2, 1], [1, 0], [[0], [1]], y=[[0] * 5 + [1] * 6, [1, np.nan] + [0] * 9]),
    "full": GraphSet(
        num_nodes=[2, 1, 3],
        num_edges=[1, 0, 2],
        edge_index=[[0, 0, 1], [1, 1, 2]],
        node_feat=[[6, 1], [8, 0], [7, 0], [6, 2], [6, 2], [900, 3]],
        edge_feat=[[1], [2], [3]],
        y=[[1.0], [0.0], [np.nan]],
        train_idx=[2],
        valid_idx=[0],
        test_idx=[1],
        ids=("a", "b", "ç"),
        smiles=("CO", "N", "CC[Lv]"),
        task_names=("toxic",),
        class_names=("no", "yes"),
        x=np.arange(12.0).reshape(6, 2) / 7,
    ),
}


def saved_set(folder: Path, **arrays: Any) -> Path:
    path = folder / "own.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("graphs", SETS.values(), ids=SETS.keys())
def test_a_set_that_was_written_is_read(graphs: GraphSet, tmp_path: Path) -> None:
    write_graph_set(tmp_path / "own.npz", graphs)
    back = read_graph_set(tmp_path / "own.npz")
    for field in (*ARRAYS, *SPLITS):
        before, after = getattr(graphs, field), getattr(back, field)
        assert type(before) is type(after), field
        if before is not None:
            assert before.dtype == after.dtype, field
            np.testing.assert_array_equal(after, before)
    assert all(getattr(back, field) == getattr(graphs, field) for field in TEXTS)
    assert back.name == "own"


def test_packed_targets_are_unpacked(tmp_path: Path) -> None:
    bits = {"y_known": np.uint8([[0b11000000], [0b01000000]]), "y_positive": np.uint8([[64], [0]])}
    graphs = read_graph_set(saved_set(tmp_path, **PAIR_AND_ONE, **bits, y_shape=[2, 3]))
    np.testing.assert_array_equal(graphs.y, [[0, 1, np.nan], [np.nan, 0, np.nan]])


def test_bonds_in_both_directions_are_held_once(tmp_path: Path) -> None:
    both = {"num_nodes_list": [2], "num_edges_list": [2], "edge_index": [[0, 1], [1, 0]]}
    assert read_graph_set(saved_set(tmp_path, **both)).num_edges.tolist() == [1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (COUNTS, "has no 'edge_index'; a file of many graphs needs"),
        (PAIR_AND_ONE | {"edge_index": [[0], [2]]}, r"is 2, but graph 0 has nodes 0\.\.1"),
        (PAIR_AND_ONE | {"ids": np.array([1, 2])}, "ids must be a row of strings"),
        (PAIR_AND_ONE | {"y": np.array([{}, {}])}, "y holds pickled Python objects"),
        (
            PAIR_AND_ONE | {"y_known": np.uint8([[1], [1]])},
            "has packed targets but no 'y_positive'",
        ),
        (
            PAIR_AND_ONE
            | dict.fromkeys(("y_known", "y_positive"), np.uint8([[1], [1]]))
            | {"y_shape": 2},
            "y_known is uint8",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(
    arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GraphError, match=rf"own\.npz: .*{message}"):
        read_graph_set(saved_set(tmp_path, **arrays))


def test_a_key_that_looks_mistyped_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved_set(tmp_path, **PAIR_AND_ONE, train_idx=[0], val_idx=[1], notes=[0])
    read_graph_set(path)
    told = [f"{path}: the key 'val_idx' is ignored; did you mean 'valid_idx'?"]
    assert caplog.messages == told
    caplog.clear()
    read_graph_set(saved_set(tmp_path, **PAIR_AND_ONE, valid_idx=[0], val_idx=[1], bonds_once=True))
    assert not caplog.messages


def test_keys_that_are_not_read_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    np.savez(tmp_path / "own.npz", **PAIR, directed=True, train_idx=[0], edge_attr=[[1.0]])
    read_npz(tmp_path / "own.npz")
    read_graph_set(saved_set(tmp_path, **PAIR_AND_ONE, bonds_once=True, pos=[0]))
    assert [told.partition(": ")[2] for told in caplog.messages] == [
        "not read: train_idx, edge_attr", "not read: pos",
    ]  # fmt: skip


def test_a_missing_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(GraphError, match="there is no such file"):
        read_graph_set(path)
    write_graph_set(path, SETS["full"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphError, match="not an npz archive, or only part of one"):
        read_graph_set(path)
    path.write_bytes(whole[:60] + bytes(40) + whole[100:])
    with pytest.raises(GraphError, match=r"damaged|has no"):
        read_graph_set(path)


def test_real_sets_are_read(shared_data: Path) -> None:
    zinc = read_graph_set(shared_data / "zinc.npz")
    assert [len(zinc), zinc.num_tasks] == [12_000, 1]
    assert [len(getattr(zinc, split)) for split in SPLITS] == [10_000, 1_000, 1_000]
    molhiv = read_graph_set(shared_data / "molhiv.npz")
    assert molhiv.node_feat.shape == (1_049_163, 9)
    positives = [int(molhiv.y[getattr(molhiv, split)].sum()) for split in SPLITS]
    assert positives == [1_232, 81, 130]


@pytest.mark.slow
def test_packed_targets_of_molpcba(shared_data: Path) -> None:
    molpcba = read_graph_set(shared_data / "molpcba.npz")
    assert molpcba.y.shape == (437_929, 128)
    assert int(np.nansum(molpcba.y, dtype=np.float64)) == 472_637
