"""Names, and the listing that reads as little as it can."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from specformer.datasets import csbm, download, grid_graph, grid_mirrors
from specformer.datasets.registry import (
    GRAPH_SETS,
    NODE_SETS,
    graph_set,
    graph_source,
    node_graph,
    survey,
)
from specformer.datasets.signals import SIGNAL_SETS
from specformer.errors import DataNotFoundError, GraphError
from specformer.graphs import Graph, GraphSet, read_npz, write_graph_set, write_npz


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
        ([-1, -1, -1], None, "has no labels to learn from; labels are read from a column label"),
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


def test_survey_tells_where_each_set_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECFORMER_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_npz(tmp_path / "cora.npz", csbm(0.5, num_nodes=20, num_features=3))
    (tmp_path / "actor.npz").write_bytes(b"half a file")
    write_npz(tmp_path / "cache" / "specformer" / "data" / "photo.npz", csbm(0.5, num_nodes=30))
    rows = {row["name"]: row for row in survey(tmp_path)}
    assert list(rows) == [*NODE_SETS, *GRAPH_SETS, *SIGNAL_SETS]
    assert rows["cora"]["path"] == str(tmp_path / "cora.npz")
    assert {key: rows["cora"][key] for key in ("state", "nodes", "features", "classes")} == {
        "state": "found",
        "nodes": 2708,
        "features": 1433,
        "classes": 7,
    }
    assert rows["photo"]["state"] == rows["actor"]["state"] == "found"
    assert rows["penn94"]["state"] == "downloads"
    assert rows["penn94"]["path"] is None
    assert rows["wordnet"]["state"] == "not found"
    assert (rows["csbm"]["state"], rows["csbm"]["nodes"]) == ("generated", 1000)
    keys = {"nodes", "edges", "features", "classes"}
    assert all(keys <= rows[name].keys() for name in NODE_SETS)


def sizes_of(graph: Graph) -> tuple[int, int, int, int]:
    return graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes


def known_sizes(name: str) -> tuple[int, int, int, int]:
    known = NODE_SETS[name]
    return known.nodes, known.edges, known.features, known.classes


def test_the_known_sizes_are_those_of_the_files(shared_data):
    found = {name: shared_data / f"{name}.npz" for name in NODE_SETS}
    there = {name: sizes_of(read_npz(path)) for name, path in found.items() if path.exists()}
    assert len(there) >= 11
    assert there == {name: known_sizes(name) for name in there}
    assert known_sizes("csbm") == sizes_of(node_graph("csbm"))


PAIR = GraphSet([2], [1], [[0], [1]], y=[1.0])


def test_the_paper_s_sets_are_known() -> None:
    assert list(GRAPH_SETS) == ["zinc", "molhiv", "molpcba", "pcqm4mv2"]
    assert [entry.metric for entry in GRAPH_SETS.values()] == ["mae", "rocauc", "ap", "mae"]


def test_a_local_file_comes_first(elsewhere: Path) -> None:
    write_graph_set(elsewhere / "own" / "molhiv.npz", PAIR)
    assert graph_set("molhiv", elsewhere / "own").name == "molhiv"


def test_a_set_is_downloaded_once(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def source(name: str, root: Path) -> GraphSet:
        asked.append(root)
        return PAIR

    monkeypatch.setitem(download.SOURCES, "zinc", source)
    assert len(graph_set("zinc")) == len(graph_set("zinc")) == 1
    assert len(asked) == 1


def test_without_a_network_one_sentence_says_what_to_do(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "OGB_URL", (elsewhere / "nowhere").as_uri())
    message = r"molpcba\.npz was not found in .*its download failed .*name its folder with --data"
    with pytest.raises(DataNotFoundError, match=message):
        graph_set("molpcba")


def test_files_of_ones_own(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_graph_set(elsewhere / "own.npz", PAIR)
    assert graph_set(elsewhere / "own.npz").name == "own"
    with pytest.raises(DataNotFoundError, match=r"other\.npz: neither a file nor a set of graphs"):
        graph_set("other.npz")
    (elsewhere / "text.npz").write_text("no archive")
    with pytest.raises(GraphError, match="not an npz archive"):
        graph_set("text.npz")
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    (elsewhere / "own.csv").write_text("smiles,y\nCCO,1\nC1,2\n")
    with caplog.at_level(logging.WARNING):
        assert len(graph_set("own.csv")) == 1
    assert "own.csv, row 3: 'C1' is not valid SMILES" in caplog.text


def test_many_rows_that_are_no_molecules_are_counted(
    elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    bad = "C1,2\n" * 1200
    (elsewhere / "own.csv").write_text(f"smiles,y\nCO,1\n{bad}CC,3\n")
    with caplog.at_level(logging.WARNING):
        assert len(graph_set("own.csv")) == 2
    *named, counted = caplog.messages
    assert named == [f"own.csv, row {row}: 'C1' is not valid SMILES" for row in range(3, 13)]
    told = "1,200 of 1,202 rows are not molecules and are left out; above are the first 10."
    assert counted == f"own.csv: {told}"


def test_real_sets_fit_their_cardinalities(shared_data: Path) -> None:
    for name in ("zinc", "molhiv"):
        graphs, entry = graph_set(name, shared_data), GRAPH_SETS[name]
        assert (graphs.node_feat.max(axis=0) < entry.atom_cardinalities).all()
        assert (graphs.edge_feat.max(axis=0) < entry.bond_cardinalities).all()


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "edges", "smallest", "largest"),
    [("zinc", 12_000, 23.2, 24.9, 9, 37), ("molhiv", 41_127, 25.5, 27.5, 2, 222)],
)
def test_real_sets_are_the_papers(
    name, graphs, nodes, edges, smallest, largest, shared_data: Path
) -> None:
    """Its table "Detailed information of graph-level datasets"."""
    found = graph_set(name, shared_data)
    assert (len(found), found.num_nodes.min(), found.num_nodes.max()) == (graphs, smallest, largest)
    assert GRAPH_SETS[name].graphs == graphs
    assert (round(found.num_nodes.mean(), 1), round(found.num_edges.mean(), 1)) == (nodes, edges)


def test_survey_opens_and_fetches_nothing(tmp_path: Path) -> None:
    (tmp_path / "molhiv.npz").write_bytes(b"PK not a zip")
    rows = {row["name"]: row for row in survey(tmp_path)}
    assert [name for name in rows if name in GRAPH_SETS] == list(GRAPH_SETS)
    assert (rows["molhiv"]["state"], rows["pcqm4mv2"]["state"]) == ("found", "downloads")
    assert (rows["molhiv"]["graphs"], rows["pcqm4mv2"]["graphs"]) == (41_127, 3_746_620)


def test_a_grid():
    graph, mirrors = graph_source("3x4")
    np.testing.assert_array_equal(graph.adjacency.toarray(), grid_graph(3, 4).adjacency.toarray())
    for mirror, expected in zip(mirrors, grid_mirrors(3, 4), strict=True):
        np.testing.assert_array_equal(mirror, expected)


def test_a_folder_has_no_known_mirrors(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    graph, mirrors = graph_source(str(tmp_path))
    assert graph.node_ids == ("a", "b", "c")
    assert mirrors == ()


@pytest.mark.parametrize(
    "source", ["3x", "x4", "3x4x5", "3 x 4", "-3x4", "nowhere.npz", "0x4", "99999x99999"]
)
def test_anything_else_is_refused(source):
    with pytest.raises((DataNotFoundError, GraphError)):
        graph_source(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("crao", "crao: neither a file, a folder nor a data set; did you mean 'cora'"),
        ("zinc", "zinc: a set of many graphs"),
        ("0x4", "0x4: the grid has no nodes"),
    ],
)
def test_what_is_wrong_is_named(source, message):
    with pytest.raises((DataNotFoundError, GraphError), match=message):
        graph_source(source)


def test_a_data_set_by_name(shared_data):
    graph, mirrors = graph_source("cora", shared_data)
    assert (graph.num_nodes, mirrors) == (2708, ())
