"""Downloads: PyG's and OGB's own readers on files of their format, and a server of the test's."""

from __future__ import annotations

import io
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.response import addinfourl

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.datasets import public_files
from torch_geometric.data import Data

from specformer.datasets import download as module
from specformer.datasets import graph_download, make_splits
from specformer.datasets.download import (
    SOURCES,
    DownloadError,
    compact,
    download,
    graph_from_ogb,
)
from specformer.datasets.registry import NODE_SETS, named_graph
from specformer.errors import DataNotFoundError
from specformer.graphs import as_graph, read_npz, write_npz

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
    np.testing.assert_array_equal(graph.x.toarray(), TRUTH.x)
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
    graph = SOURCES[name](name, tmp_path)
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
    addresses = (module.FILTERED_URL, graph_download.OGB_URL, graph_download.PCQM4MV2_URL)
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
