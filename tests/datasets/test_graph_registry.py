"""Sets of graphs by name or path: the local file first, the download last, one clear error."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from specformer.datasets import graph_download
from specformer.datasets.graph_registry import GRAPH_SETS, graph_set, survey_graph_sets
from specformer.errors import DataNotFoundError, GraphError
from specformer.graphs import GraphSet, write_graph_set

PAIR = GraphSet([2], [1], [[0], [1]], y=[1.0])


def test_the_paper_s_sets_are_known() -> None:
    assert list(GRAPH_SETS) == ["zinc", "molhiv", "molpcba", "pcqm4mv2"]
    assert [entry.metric for entry in GRAPH_SETS.values()] == ["mae", "rocauc", "ap", "mae"]


def test_a_local_file_comes_first(elsewhere: Path) -> None:
    write_graph_set(elsewhere / "own" / "molhiv.npz", PAIR)
    assert graph_set("molhiv", elsewhere / "own").name == "molhiv"


def test_a_set_is_downloaded_once(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def source(root: Path) -> GraphSet:
        asked.append(root)
        return PAIR

    monkeypatch.setitem(graph_download.GRAPH_SOURCES, "zinc", source)
    assert len(graph_set("zinc")) == len(graph_set("zinc")) == 1
    assert len(asked) == 1


def test_without_a_network_one_sentence_says_what_to_do(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_download, "OGB_URL", (elsewhere / "nowhere").as_uri())
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
    told = "1,200 of 1,202 rows are no molecules and are left out; above are the first 10."
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


def test_survey_reads_sizes_and_fetches_nothing(tmp_path: Path) -> None:
    counts = {"num_nodes_list": [2, 3], "num_edges_list": [1, 0]}
    np.savez(tmp_path / "zinc.npz", edge_index=[[0], [1]], **counts)
    (tmp_path / "molhiv.npz").write_bytes(b"PK not a zip")
    np.savez(tmp_path / "molpcba.npz", num_nodes_list=3)  # no list
    rows = {row["name"]: row for row in survey_graph_sets(tmp_path)}
    assert list(rows) == list(GRAPH_SETS)
    zinc = rows["zinc"]
    assert (zinc["state"], zinc["graphs"], zinc["nodes"]) == ("found", 2, 5)
    assert rows["molhiv"]["state"] == rows["molpcba"]["state"] == "damaged"
    assert (rows["molhiv"]["graphs"], rows["pcqm4mv2"]["graphs"]) == (41_127, 3_746_620)
