"""A path is read by what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from specformer.errors import GraphError
from specformer.graphs import as_graph, read_graph, write_npz


def test_a_file_and_a_folder_of_the_same_graph(tmp_path: Path) -> None:
    write_npz(tmp_path / "file.npz", as_graph([[0, 1], [1, 2]]))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    file, folder = read_graph(str(tmp_path / "file.npz")), read_graph(tmp_path)
    assert (file.adjacency != folder.adjacency).nnz == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("graph.doc", "graph.doc: cannot read a graph from a '.doc' file; pass a folder with"),
        ("graph", "graph: cannot read a graph from a '' file"),
    ],
)
def test_unknown_files_are_named(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("source,target\n")
    with pytest.raises(GraphError, match=message):
        read_graph(tmp_path / name)


def test_a_csv_file_alone_is_a_list_of_edges(tmp_path: Path) -> None:
    (tmp_path / "k.tsv").write_text("u\tv\tWeight\na\tb\t2\n")
    graph = read_graph(tmp_path / "k.tsv")
    assert (graph.name, graph.node_ids, graph.adjacency.toarray()[0, 1]) == ("k", ("a", "b"), 2.0)


def test_a_missing_path_is_named() -> None:
    with pytest.raises(GraphError, match="nowhere: there is no such file or folder"):
        read_graph("nowhere")
