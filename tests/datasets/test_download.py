"""Downloads: PyG's and OGB's own readers on files of their format, and a server of the test's."""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.response import addinfourl

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.datasets import public_files
from torch_geometric.data import Data

from specformer.datasets import download as module
from specformer.datasets import make_splits
from specformer.datasets.download import (
    SOURCES,
    DownloadError,
    compact,
    download,
    graph_from_ogb,
    graph_set_from_ogb,
    graph_set_from_pcqm4mv2,
    graph_set_from_zinc,
)
from specformer.datasets.registry import NODE_SETS, named_graph
from specformer.errors import DataNotFoundError, GraphError
from specformer.graphs import as_graph, read_graph_set, read_npz, read_smiles, write_npz

TRUTH = public_files.truth()


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """Searched folders and cache below ``tmp_path``, and nothing beyond this machine in reach."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECFORMER_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def assert_true(graph, *, masks=True):
    np.testing.assert_array_equal(graph.adjacency.toarray(), TRUTH.adjacency)
    np.testing.assert_array_equal(compact(graph).x.toarray(), TRUTH.x)
    np.testing.assert_array_equal(graph.y, TRUTH.y)
    for part, mask in TRUTH.masks.items():
        found = getattr(graph, f"{part}_mask")
        if masks:
            np.testing.assert_array_equal(found, mask)
        else:
            assert found is None


@pytest.mark.parametrize("name", ["cora", "chameleon", "actor", "photo"])
def test_pyg_classes_read_what_they_would_download(name, tmp_path):
    getattr(public_files, f"write_{name}")(TRUTH, tmp_path)
    graph = SOURCES[name](name, tmp_path)
    assert graph.name == name
    assert_true(graph, masks=name != "photo")
    write_npz(tmp_path / f"{name}.npz", graph)
    assert_true(read_npz(tmp_path / f"{name}.npz"), masks=name != "photo")


@pytest.mark.parametrize("name", ["penn94", "cornell5"])
def test_facebook_graphs(name, tmp_path):
    public_files.write_facebook(TRUTH, tmp_path, name)
    graph = compact(SOURCES[name](name, tmp_path))
    table = public_files.facebook_table(TRUTH).astype(int)
    # Every category of every column but the gender is a feature of its own, gender is the label.
    expected = np.concatenate(
        [np.eye(count)[table[:, i]] for i, count in ((0, 3), (2, 4), (3, 3))], 1
    )
    np.testing.assert_array_equal(graph.x.toarray(), expected)
    np.testing.assert_array_equal(graph.y, table[:, 1] - 1)
    np.testing.assert_array_equal(graph.adjacency.toarray(), TRUTH.adjacency)
    if name == "cornell5":
        assert graph.num_splits == 0
        return
    assert graph.num_splits == 5
    splits = make_splits(graph, "official", 5, seed=0)
    for number, split in enumerate(splits):
        expected = TRUTH.masks["train"][:, number] & (table[:, 1] > 0)
        np.testing.assert_array_equal(split.train, expected)


def test_ogb_reads_what_it_would_download(tmp_path):
    pytest.importorskip("ogb", reason="needs specformer[chem]")
    public_files.write_arxiv(TRUTH, tmp_path)
    graph = SOURCES["ogbn-arxiv"]("ogbn-arxiv", tmp_path)
    np.testing.assert_array_equal(graph.adjacency.toarray(), TRUTH.adjacency)
    np.testing.assert_array_equal(graph.x, TRUTH.x + 0.25)
    np.testing.assert_array_equal(graph.y, TRUTH.y)
    np.testing.assert_array_equal(graph.val_mask[:, 0], TRUTH.masks["val"][:, 0])
    three = make_splits(graph, "official", 3, seed=0)
    assert len({split.fingerprint for split in three}) == 1
    np.testing.assert_array_equal(three[2].test, TRUTH.masks["test"][:, 0])


def test_ogb_fields_become_a_graph():
    raw = {"edge_index": np.array([[0, 1], [1, 2]]), "node_feat": np.eye(3), "num_nodes": 3}
    split = {"train": torch.tensor([0]), "valid": np.array([1]), "test": [2]}
    graph = graph_from_ogb(raw, np.array([[4.0], [np.nan], [0.0]]), split, "tiny")
    assert graph.y.tolist() == [4, -1, 0]
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert graph.test_mask.tolist() == [[False], [False], [True]]


def test_features_are_sparse_only_where_that_is_smaller():
    edges = torch.tensor([[0], [1]])
    dense = compact(as_graph(Data(edge_index=edges, x=torch.rand(2, 3) + 1)))
    assert isinstance(dense.x, np.ndarray)
    sparse = compact(as_graph(Data(edge_index=edges, x=torch.eye(2, 5))))
    assert sp.issparse(sparse.x)
    np.testing.assert_array_equal(sparse.x.toarray(), np.eye(2, 5))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Stand in for the filtered sets' host with a real server on this machine."""
    (tmp_path / "public").mkdir()
    handler = partial(_Quiet, directory=tmp_path / "public")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        monkeypatch.setattr(module, "FILTERED_URL", f"http://127.0.0.1:{http.server_port}")
        yield tmp_path / "public"
        http.shutdown()


def test_a_set_is_downloaded_once_and_kept(server, tmp_path, capsys):
    public_files.write_platonov(TRUTH, server / "squirrel_filtered.npz")
    assert_true(named_graph("squirrel-filtered"))
    kept = tmp_path / "cache" / "specformer" / "data"
    assert [path.name for path in kept.iterdir()] == ["squirrel-filtered.npz"]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [f"Downloading squirrel-filtered to {kept} …"]
    (server / "squirrel_filtered.npz").unlink()
    assert_true(named_graph("squirrel-filtered"))
    assert capsys.readouterr().err == ""


def test_a_folder_of_files_comes_before_a_download(server, tmp_path):
    public_files.write_actor(TRUTH, tmp_path / "actor")
    write_npz(tmp_path / "chameleon-filtered.npz", SOURCES["actor"]("actor", tmp_path / "actor"))
    assert_true(named_graph("chameleon-filtered", tmp_path))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("content", [None, b"<html>log in first</html>"])
def test_what_does_not_arrive_whole_leaves_nothing(content, server, tmp_path):
    if content is not None:
        (server / "squirrel_filtered.npz").write_bytes(content)
    with pytest.raises(DataNotFoundError, match=r"its download failed \(.+\); name its folder"):
        named_graph("squirrel-filtered")
    assert list((tmp_path / "cache" / "specformer" / "data").iterdir()) == []


def test_a_download_that_breaks_off_is_refused(server, tmp_path, monkeypatch):
    """Python's own client takes the end of a connection for the end of a file."""
    send_header = SimpleHTTPRequestHandler.send_header

    def promise_more(self, name, value):
        send_header(self, name, str(int(value) + 9) if name == "Content-Length" else value)

    monkeypatch.setattr(SimpleHTTPRequestHandler, "send_header", promise_more)
    public_files.write_platonov(TRUTH, server / "squirrel_filtered.npz")
    size = (server / "squirrel_filtered.npz").stat().st_size
    with pytest.raises(DataNotFoundError, match=rf"broke off after {size:,} of {size + 9:,} bytes"):
        named_graph("squirrel-filtered")
    assert list((tmp_path / "cache" / "specformer" / "data").iterdir()) == []


def test_a_checksum_that_the_source_gives_is_compared(tmp_path):
    (tmp_path / "sent").write_bytes(b"abc")
    url, known = (tmp_path / "sent").as_uri(), "900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
    module.fetch(url, tmp_path / "got", md5=known)
    (tmp_path / "sent").write_bytes(b"abd")
    with pytest.raises(DownloadError, match="does not have the checksum of its source"):
        module.fetch(url, tmp_path / "got", md5=known)


def test_no_set_comes_over_plain_http(tmp_path, monkeypatch):
    addresses = (module.FILTERED_URL, module.OGB_URL, module.PCQM4MV2_URL)
    assert all(url.startswith("https://") for url in addresses)
    elsewhere = addinfourl(io.BytesIO(b"x"), {}, "http://elsewhere.example/x", 200)
    monkeypatch.setattr(module.urllib.request, "urlopen", lambda url, timeout: elsewhere)
    with pytest.raises(DownloadError, match=r"redirects to http://elsewhere\.example/x"):
        module.fetch("https://here.example/x", tmp_path / "x")


def test_without_a_network_one_sentence_says_so(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataNotFoundError) as caught:
        named_graph("penn94", tmp_path / "mine")
    text = str(caught.value)
    assert text.startswith(f"penn94.npz was not found in {tmp_path / 'mine'}, data, ")
    assert str(tmp_path / "cache" / "specformer" / "data") in text
    assert "its download failed (<urlopen error " in text
    assert text.endswith("; name its folder with --data or $SPECFORMER_DATA.")
    assert "\n" not in text


def test_without_ogb_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(DownloadError, match=r"needs OGB \(pip install 'specformer\[chem\]'\)"):
        download("ogbn-arxiv")


def test_a_set_without_a_public_source():
    with pytest.raises(DataNotFoundError, match=r"wordnet\.npz was not found .* it cannot be down"):
        named_graph("wordnet")


def test_every_name_is_downloaded_generated_or_local():
    assert set(NODE_SETS) - set(SOURCES) == {"wordnet", "csbm", "acm"}


# --- sets of molecules ----------------------------------------------------------------------------


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
    monkeypatch.setattr(module, "_CHUNK", 2)
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
    monkeypatch.setattr(module, "OGB_URL", archive.parent.as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = download("molhiv")
    assert path == tmp_path / "cache" / "specformer" / "data" / "molhiv.npz"
    assert len(read_graph_set(path)) == 3
    assert list(path.parent.iterdir()) == [path]
    assert capsys.readouterr().out == ""


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OGB_URL", (tmp_path / "nowhere").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DownloadError, match="its download failed"):
        download("molhiv")
    assert not list((tmp_path / "cache" / "specformer" / "data").iterdir())


def test_an_archive_that_the_disk_cannot_hold_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "hiv.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("hiv/raw/zeros", bytes(10**7))
    monkeypatch.setattr(module, "OGB_URL", tmp_path.as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    with pytest.raises(DownloadError, match=r"it needs 0\.0 GiB of disk, and 0\.0 GiB are free"):
        download("molhiv")
    assert not list((tmp_path / "cache" / "specformer" / "data").iterdir())
