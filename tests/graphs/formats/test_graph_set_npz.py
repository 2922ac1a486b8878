"""Files of many graphs: written whole, read back equal, refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specformer.errors import GraphError
from specformer.graphs import GraphSet, read_graph_set, write_graph_set

COUNTS: dict[str, Any] = {"num_nodes_list": [2, 1], "num_edges_list": [1, 0]}
PAIR: dict[str, Any] = COUNTS | {"edge_index": [[0], [1]]}
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


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "own.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("graphs", SETS.values(), ids=SETS.keys())
def test_what_was_written_is_read(graphs: GraphSet, tmp_path: Path) -> None:
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


def test_binary_targets_are_stored_as_bits(tmp_path: Path) -> None:
    write_graph_set(tmp_path / "own.npz", SETS["binary"])
    with np.load(tmp_path / "own.npz", allow_pickle=False) as file:
        assert file["y_known"].shape == (2, 2)
        assert "y" not in file.files
        assert bool(file["bonds_once"])


def test_packed_targets_are_unpacked(tmp_path: Path) -> None:
    bits = {"y_known": np.uint8([[0b11000000], [0b01000000]]), "y_positive": np.uint8([[64], [0]])}
    graphs = read_graph_set(saved(tmp_path, **PAIR, **bits, y_shape=[2, 3]))
    np.testing.assert_array_equal(graphs.y, [[0, 1, np.nan], [np.nan, 0, np.nan]])


def test_bonds_in_both_directions_are_held_once(tmp_path: Path) -> None:
    both = {"num_nodes_list": [2], "num_edges_list": [2], "edge_index": [[0, 1], [1, 0]]}
    assert read_graph_set(saved(tmp_path, **both)).num_edges.tolist() == [1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (COUNTS, "has no 'edge_index'; a file of many graphs needs"),
        (PAIR | {"edge_index": [[0], [2]]}, r"is 2, but graph 0 has nodes 0\.\.1"),
        (PAIR | {"ids": np.array([1, 2])}, "ids must be a row of strings"),
        (PAIR | {"y": np.array([{}, {}])}, "y holds pickled Python objects"),
        (PAIR | {"y_known": np.uint8([[1], [1]])}, "has packed targets but no 'y_positive'"),
        (
            PAIR | dict.fromkeys(("y_known", "y_positive"), np.uint8([[1], [1]])) | {"y_shape": 2},
            "y_known is uint8",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(
    arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GraphError, match=rf"own\.npz: .*{message}"):
        read_graph_set(saved(tmp_path, **arrays))


def test_a_key_that_looks_mistyped_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path, **PAIR, train_idx=[0], val_idx=[1], notes=[0])
    read_graph_set(path)
    told = [f"{path}: the key 'val_idx' is left alone; did you mean 'valid_idx'?"]
    assert caplog.messages == told
    caplog.clear()
    read_graph_set(saved(tmp_path, **PAIR, valid_idx=[0], val_idx=[1], bonds_once=True))
    assert not caplog.messages


def test_a_missing_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(GraphError, match="there is no such file"):
        read_graph_set(path)
    write_graph_set(path, SETS["full"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphError, match="not an npz archive, or not a whole one"):
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
