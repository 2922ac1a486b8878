"""Names, and the listing that reads as little as it can."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from specformer.datasets import csbm
from specformer.datasets.registry import NODE_SETS, Sizes, file_sizes, node_graph, survey
from specformer.errors import DataNotFoundError, GraphError
from specformer.graphs import Graph, read_npz, write_npz


def test_names():
    assert set(NODE_SETS) == {
        *("cora", "citeseer", "pubmed", "photo", "computers", "chameleon", "squirrel", "actor"),
        *("chameleon-filtered", "squirrel-filtered", "penn94", "ogbn-arxiv", "cornell5"),
        *("minesweeper", "blogcatalog", "dblp", "acm", "wordnet", "csbm"),
    }


def test_csbm_is_always_there():
    graph = node_graph("csbm")
    assert (graph.name, graph.num_nodes, graph.num_classes) == ("csbm", 1000, 2)
    rows, columns = graph.adjacency.nonzero()
    assert np.mean(graph.y[rows] == graph.y[columns]) < 0.4  # heterophilic


@pytest.mark.parametrize(("source", "meant"), [("crao", "cora"), ("pubmde", "pubmed")])
def test_the_nearest_name_is_suggested(source, meant):
    with pytest.raises(DataNotFoundError, match=rf"{source}: .*did you mean '{meant}'\?$"):
        node_graph(source)
    with pytest.raises(DataNotFoundError, match=r"xyz: .*; those are cora, .*\.$"):
        node_graph("xyz")


@pytest.mark.parametrize(
    ("y", "names", "message"),
    [
        ([-1, -1, -1], None, "has no labels to learn; they are y in an npz file, the"),
        ([0, 0, -1], ("cat", "dog"), "every label is cat; two classes are needed"),
        ([2, 2, 2], None, "every label is 2; two classes are needed"),
    ],
)
def test_labels_of_fewer_than_two_classes_are_refused(y, names, message, tmp_path):
    path = tmp_path / "mine.npz"
    write_npz(path, Graph(sp.csr_array((3, 3)), x=np.eye(3), y=np.array(y), class_names=names))
    with pytest.raises(GraphError, match=rf"mine\.npz: .*{message}"):
        node_graph(str(path))
    assert node_graph(str(path), labels=False).num_nodes == 3


def test_sizes_are_those_of_the_whole_graph(tmp_path):
    graph = csbm(0.5, num_nodes=60, num_features=5)
    loops = graph.adjacency.tolil()
    loops[3, 3] = 1
    for name, x in (("dense", graph.x), ("sparse", np.eye(60, 7)), ("none", None)):
        path = tmp_path / f"{name}.npz"
        write_npz(path, Graph(loops.tocsr(), x=x, y=graph.y))
        whole, sizes = read_npz(path), file_sizes(path)
        assert (sizes.nodes, sizes.edges) == (whole.num_nodes, whole.num_edges)
        assert (sizes.features, sizes.classes) == (whole.num_features, whole.num_classes)


def test_edges_named_both_ways_count_once(tmp_path):
    path = tmp_path / "pair.npz"
    np.savez(path, edge_index=[[0, 1, 2, 2], [1, 0, 2, 1]], num_nodes=3, class_names=["a", "b"])
    sizes = file_sizes(path)
    assert (sizes.nodes, sizes.edges, sizes.features, sizes.classes) == (3, 2, 0, 2)


def test_features_are_not_read(tmp_path):
    """A file whose features cannot be loaded, cut in the middle of them, still has sizes."""
    path = tmp_path / "objects.npz"
    objects = np.empty((3, 4), dtype=object)
    np.savez(path, edge_index=[[0], [1]], num_nodes=3, x=objects)
    assert file_sizes(path).features == 4


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
def test_a_damaged_file_is_named(content, tmp_path):
    path = tmp_path / "cora.npz"
    if content is None:
        np.savez(path, edge_index=[[0], [1]])  # no num_nodes
    else:
        path.write_bytes(content)
    with pytest.raises(GraphError, match=r"cora\.npz: is damaged, or holds no graph"):
        file_sizes(path)


def test_an_archive_with_a_password_is_one_that_cannot_be_read(tmp_path):
    """zipfile raises a RuntimeError of its own for it."""
    path = tmp_path / "cora.npz"
    np.savez(path, edge_index=[[0], [1]], num_nodes=2)
    written = bytearray(path.read_bytes())
    entry = written.find(b"PK\1\2")  # of the directory at its end
    while entry >= 0:
        written[entry + 8] |= 1  # encrypted
        entry = written.find(b"PK\1\2", entry + 1)
    path.write_bytes(written)
    with pytest.raises(GraphError, match=r"cora\.npz: is damaged, or holds no graph"):
        file_sizes(path)


def test_survey_tells_where_each_set_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECFORMER_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_npz(tmp_path / "cora.npz", csbm(0.5, num_nodes=20, num_features=3))
    (tmp_path / "actor.npz").write_bytes(b"half a file")
    write_npz(tmp_path / "cache" / "specformer" / "data" / "photo.npz", csbm(0.5, num_nodes=30))
    rows = {row["name"]: row for row in survey(tmp_path)}
    assert list(rows) == list(NODE_SETS)
    assert rows["cora"]["path"] == str(tmp_path / "cora.npz")
    assert {key: rows["cora"][key] for key in ("state", "nodes", "features", "classes")} == {
        "state": "found",
        "nodes": 20,
        "features": 3,
        "classes": 2,
    }
    assert (rows["photo"]["state"], rows["photo"]["nodes"]) == ("found", 30)
    assert rows["actor"]["state"] == "damaged"
    assert rows["penn94"]["state"] == "downloads"
    assert rows["penn94"]["path"] is None
    assert rows["wordnet"]["state"] == "not found"
    assert (rows["csbm"]["state"], rows["csbm"]["nodes"]) == ("generated", 1000)
    assert all({"nodes", "edges", "features", "classes"} <= row.keys() for row in rows.values())


def test_the_known_sizes_are_those_of_the_files(shared_data):
    found = {name: shared_data / f"{name}.npz" for name in NODE_SETS}
    there = {name: file_sizes(path) for name, path in found.items() if path.exists()}
    assert len(there) >= 11
    assert there == {name: NODE_SETS[name].sizes for name in there}
    graph = node_graph("csbm")
    sizes = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    assert NODE_SETS["csbm"].sizes == Sizes(*sizes)


def test_sizes_of_the_real_files(shared_data):
    # From the data's own table: nodes, edges without loops, features, classes.
    expected = {
        "citeseer": (3327, 4552, 3703, 6),
        "chameleon": (2277, 31371, 2325, 5),
        "squirrel-filtered": (2223, 46998, 2089, 5),
        "wordnet": (117659, 183789, 2739, 45),
    }
    for name, sizes in expected.items():
        found = file_sizes(shared_data / f"{name}.npz")
        assert (found.nodes, found.edges, found.features, found.classes) == sizes
