"""Public sources of molecules, read from small files of the same format."""

from __future__ import annotations

import gzip
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from specformer.datasets import graph_download
from specformer.datasets.download import DownloadError
from specformer.datasets.graph_download import (
    download_graphs,
    graph_set_from_ogb,
    graph_set_from_pcqm4mv2,
    graph_set_from_zinc,
)
from specformer.errors import GraphError
from specformer.graphs import read_graph_set, read_smiles


def gzipped(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


OGB_FILES = {
    "raw/num-node-list": "3\n1\n2\n",
    "raw/num-edge-list": "2\n0\n1\n",
    "raw/edge": "0,1\n1,2\n0,1\n",
    "raw/node-feat": "5,0\n5,0\n7,1\n10,0\n5,3\n5,2\n",
    "raw/edge-feat": "0,0,0\n0,0,1\n3,0,1\n",
    "raw/graph-label": "0.0,,1\n,,\n,1,\n",
    "split/scaffold/train": "0\n",
    "split/scaffold/valid": "2\n",
    "split/scaffold/test": "1\n",
}


def ogb_folder(folder: Path) -> Path:
    for name, text in OGB_FILES.items():
        gzipped(folder / f"{name}.csv.gz", text)
    return folder


def test_an_archive_of_ogb(tmp_path: Path) -> None:
    graphs = graph_set_from_ogb(ogb_folder(tmp_path), "molhiv")
    assert repr(graphs).startswith("GraphSet('molhiv', graphs=3, nodes=6, edges=3, tasks=3")
    nan = np.nan
    np.testing.assert_array_equal(graphs.y, [[0, nan, 1], [nan, nan, nan], [nan, 1, nan]])
    assert graphs.edge_index.tolist() == [[0, 1, 0], [1, 2, 1]]
    assert [graphs.train_idx.tolist(), graphs.valid_idx.tolist()] == [[0], [2]]


def test_ogbs_own_reader_finds_the_same(tmp_path: Path, capsys: Any) -> None:
    reader = pytest.importorskip("ogb.io.read_graph_raw", exc_type=ImportError)
    graphs = graph_set_from_ogb(ogb_folder(tmp_path), "molhiv")
    theirs = reader.read_csv_graph_raw(str(tmp_path / "raw"), add_inverse_edge=False)
    for field in ("node_feat", "edge_feat"):
        joined = np.concatenate([graph[field] for graph in theirs])
        np.testing.assert_array_equal(getattr(graphs, field), joined)
    joined = np.concatenate([graph["edge_index"] for graph in theirs], axis=1)
    np.testing.assert_array_equal(graphs.edge_index, joined)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1\n\n0\n", [[1], [np.nan], [0]]), ("\n\n1\n", [[np.nan], [np.nan], [1]])],
)
def test_a_missing_label_of_a_single_task(text: str, expected: Any, tmp_path: Path) -> None:
    folder = ogb_folder(tmp_path)
    gzipped(folder / "raw/graph-label.csv.gz", text)
    np.testing.assert_array_equal(graph_set_from_ogb(folder, "molhiv").y, expected)


def test_a_broken_archive_is_named(tmp_path: Path) -> None:
    folder = ogb_folder(tmp_path)
    gzipped(folder / "raw/edge.csv.gz", "0,1\n1,x\n0,1\n")
    with pytest.raises(GraphError, match=r"edge\.csv\.gz: could not convert string 'x'"):
        graph_set_from_ogb(folder, "molhiv")
    (folder / "raw/edge.csv.gz").unlink()
    with pytest.raises(GraphError, match=r"edge\.csv\.gz: cannot be read"):
        graph_set_from_ogb(folder, "molhiv")


SMILES = ["CCO", "O=C=O", "C1CC", "c1ccccc1", "N"]


def pcqm_folder(folder: Path) -> Path:
    gaps = ("5.1", "8.2", "1.0", "6.9", "")
    rows = [f"{i},{text},{gap}" for i, (text, gap) in enumerate(zip(SMILES, gaps, strict=True))]
    gzipped(folder / "raw/data.csv.gz", "\n".join(["idx,smiles,homolumogap", *rows, ""]))
    parts = {"train": [3, 0], "valid": [1, 2], "test-dev": [4], "test-challenge": [4]}
    split = {part: np.array(index, dtype=np.int64) for part, index in parts.items()}
    torch.save(split, folder / "split_dict.pt")  # noqa: TID251  # OGB's own file is such a one
    return folder


def test_an_archive_of_pcqm4mv2(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    graphs = graph_set_from_pcqm4mv2(pcqm_folder(tmp_path), workers=1)
    expected = read_smiles([SMILES[i] for i in (0, 1, 3, 4)]).graphs
    for field in ("num_nodes", "edge_index", "node_feat", "edge_feat"):
        np.testing.assert_array_equal(getattr(graphs, field), getattr(expected, field))
    np.testing.assert_array_equal(graphs.y.ravel(), np.float32([5.1, 8.2, 6.9, np.nan]))
    assert graphs.train_idx.tolist() == [2, 0]
    assert graphs.valid_idx.tolist() == [1]  # the third molecule cannot be read
    assert graphs.test_idx.tolist() == [3]
    assert (graphs.name, graphs.task_names) == ("pcqm4mv2", ("homolumogap",))


@pytest.mark.slow
def test_several_processes_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    monkeypatch.setattr(graph_download, "_CHUNK", 2)
    folder = pcqm_folder(tmp_path)
    one, two = (graph_set_from_pcqm4mv2(folder, workers=count) for count in (1, 2))
    np.testing.assert_array_equal(one.node_feat, two.node_feat)
    np.testing.assert_array_equal(one.train_idx, two.train_idx)


def test_a_split_that_is_more_than_arrays_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    folder = pcqm_folder(tmp_path)
    torch.save({"train": Path("x")}, folder / "split_dict.pt")  # noqa: TID251
    with pytest.raises(GraphError, match=r"split_dict\.pt: is not a dictionary of index arrays"):
        graph_set_from_pcqm4mv2(folder, workers=1)


def test_a_table_without_its_columns_is_named(tmp_path: Path) -> None:
    gzipped(tmp_path / "raw/data.csv.gz", "idx,smiles\n0,C\n")
    with pytest.raises(GraphError, match="there is no column 'homolumogap'"):
        graph_set_from_pcqm4mv2(tmp_path)


def test_pygs_parts_of_zinc() -> None:
    """Bonds both ways, one column of types without a second axis, as PyG's class has them."""
    ends = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])

    def molecule(y: float) -> Data:
        kinds = torch.tensor([1, 1, 2, 2])
        atoms = torch.tensor([[0], [5], [27]])
        return Data(x=atoms, edge_index=ends, edge_attr=kinds, y=torch.tensor([y]))

    parts = {
        "train": [molecule(0.5), molecule(1.5)],
        "val": [molecule(2.0)],
        "test": [molecule(3.0)],
    }
    graphs = graph_set_from_zinc(parts)
    assert graphs.y.ravel().tolist() == [0.5, 1.5, 2.0, 3.0]
    assert graphs.edge_feat.ravel().tolist() == [1, 2] * 4
    assert [graphs.train_idx.tolist(), graphs.valid_idx.tolist()] == [[0, 1], [2]]
    assert graphs.test_idx.tolist() == [3]


def test_a_download_ends_as_npz_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real steps on an archive that lies on this disk instead of OGB's server."""
    source = ogb_folder(tmp_path / "source" / "hiv")
    archive = tmp_path / "served" / "hiv.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        for path in source.rglob("*.gz"):
            file.write(path, path.relative_to(source.parent))
    monkeypatch.setattr(graph_download, "OGB_URL", archive.parent.as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = download_graphs("molhiv")
    assert path == tmp_path / "cache" / "specformer" / "data" / "molhiv.npz"
    assert len(read_graph_set(path)) == 3
    assert list(path.parent.iterdir()) == [path]
    assert capsys.readouterr().out == ""


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_download, "OGB_URL", (tmp_path / "nowhere").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DownloadError, match="its download failed"):
        download_graphs("molhiv")
    assert not list((tmp_path / "cache" / "specformer" / "data").iterdir())


def test_an_archive_that_the_disk_cannot_hold_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "hiv.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("hiv/raw/zeros", bytes(10**7))
    monkeypatch.setattr(graph_download, "OGB_URL", tmp_path.as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    with pytest.raises(DownloadError, match=r"it needs 0\.0 GiB of disk, and 0\.0 GiB are free"):
        download_graphs("molhiv")
    assert not list((tmp_path / "cache" / "specformer" / "data").iterdir())
