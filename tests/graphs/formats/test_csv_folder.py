"""Folders of CSV files: what people keep, and the mistakes they make."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specformer.datasets import make_splits
from specformer.errors import GraphError
from specformer.graphs import Columns, read_csv_folder, read_graph, read_npz, write_npz

EDGES = "source,target\nann,bob\nbob,cy\n"
NODES = "id,age,height,label\nann,30,1.7,dog\nbob,41,1.8,cat\ncy,29,1.6,\n"


def folder_with(where: Path, edges: str | bytes | None, nodes: str | None = None) -> Path:
    folder = where / "my-graph"
    folder.mkdir()
    if isinstance(edges, bytes):
        (folder / "edges.csv").write_bytes(edges)
    elif edges is not None:
        (folder / "edges.csv").write_text(edges, encoding="utf-8")
    if nodes is not None:
        (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    return folder


def test_edges_and_nodes(tmp_path: Path) -> None:
    graph = read_graph(folder_with(tmp_path, EDGES, NODES))
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(graph.x, np.float32([[30, 1.7], [41, 1.8], [29, 1.6]]))
    assert graph.feature_names == ("age", "height")
    assert graph.y.tolist() == [1, 0, -1]
    assert graph.class_names == ("cat", "dog")
    assert graph.node_ids == ("ann", "bob", "cy")
    assert graph.name == "my-graph"


def test_columns_of_masks_are_a_split_and_no_features(tmp_path: Path) -> None:
    nodes = "id,age,label,train_mask,val_mask,test_mask\nann,30,a,1,0,0\nbob,41,b,0,TRUE,false\n"
    graph = read_graph(folder_with(tmp_path, EDGES, nodes + "cy,29,a,False,0,True\n"))
    assert graph.feature_names == ("age",)
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    np.testing.assert_array_equal(np.hstack(masks), np.eye(3, dtype=bool))
    (split,) = make_splits(graph, "official", count=1, seed=0)
    np.testing.assert_array_equal(split.test, [False, False, True])


def test_columns_without_a_name_are_no_features(tmp_path: Path) -> None:
    """Pandas' index in front, and what a spreadsheet leaves at the end."""
    index = ",id,age,,\n0,ann,30,,\n1,bob,41,,\n2,cy,29,7,\n"
    graph = read_graph(folder_with(tmp_path, ",source,target\n0,ann,bob\n1,bob,cy\n", index))
    assert (graph.node_ids, graph.feature_names) == (("ann", "bob", "cy"), ("age",))
    np.testing.assert_array_equal(graph.x, np.float32([[30], [41], [29]]))
    (tmp_path / "my-graph" / "nodes.csv").write_text(",age\nann,30\nbob,41\ncy,29\n")
    assert read_graph(tmp_path / "my-graph").node_ids == ("ann", "bob", "cy")  # the first column


def test_weights_follow_the_rule_of_all_sources(tmp_path: Path) -> None:
    rows = "source,target,since,weight\n0,1,1999,1\n0,1,2001,2\n1,0,,5\n1,1,,0.5\n"
    graph = read_csv_folder(folder_with(tmp_path, rows))
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 5], [5, 0.5]])


def test_integer_ids_and_labels_are_sorted_by_number(tmp_path: Path) -> None:
    graph = read_csv_folder(folder_with(tmp_path, "source,target\n10,9\n9,2\n"))
    assert graph.node_ids == ("2", "9", "10")
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    (tmp_path / "my-graph" / "nodes.csv").write_text("id,label\n10,10\n9,-1\n2,2\n")
    graph = read_csv_folder(tmp_path / "my-graph")
    assert graph.node_ids == ("10", "9", "2")
    assert graph.class_names == ("-1", "2", "10")
    assert graph.y.tolist() == [2, 0, 1]


def test_text_ids_are_sorted_by_the_alphabet_without_nodes(tmp_path: Path) -> None:
    graph = read_csv_folder(folder_with(tmp_path, "source,target\nb,a\n10,9\n"))
    assert graph.node_ids == ("10", "9", "a", "b")


@pytest.mark.parametrize(
    "edges",
    [
        "src,dst\nann,bob\nbob,cy\n",
        "weightless,target,source\nx,bob,ann\ny,cy,bob\n",
        "\ufeffsource, target\r\nann, bob\r\n\r\nbob,cy\r\n\r\n",
        'source,target\n"ann","bob"\nbob ,cy',
    ],
    ids=["alias", "other columns", "bom, crlf, blank lines, spaces", "quotes"],
)
def test_csv_as_programs_write_it(edges: str, tmp_path: Path) -> None:
    graph = read_csv_folder(folder_with(tmp_path, edges))
    assert graph.node_ids == ("ann", "bob", "cy")
    assert graph.num_edges == 2


def test_a_node_without_edges_and_edges_without_rows(tmp_path: Path) -> None:
    graph = read_csv_folder(folder_with(tmp_path, "source,target\n", "id\na\nb\n"))
    assert (graph.num_nodes, graph.num_edges, graph.x, graph.y) == (2, 0, None, None)


def test_the_columns_asked_for(tmp_path: Path) -> None:
    nodes = "kind,note,key,age\n1,first,ann,30\n0,second,bob,41\n1,third,cy,29\n"
    folder = folder_with(tmp_path, EDGES, nodes)
    graph = read_csv_folder(folder, Columns(id="key", label="kind", features=("age",)))
    assert (graph.node_ids, graph.feature_names) == (("ann", "bob", "cy"), ("age",))
    assert graph.y.tolist() == [1, 0, 1]


def test_the_first_column_is_the_id_if_none_is_called_so(tmp_path: Path) -> None:
    graph = read_csv_folder(folder_with(tmp_path, EDGES, ",age\nann,1\nbob,2\ncy,3\n"))
    assert (graph.node_ids, graph.feature_names) == (("ann", "bob", "cy"), ("age",))


@pytest.mark.parametrize(
    "edges",
    [
        "Source;Target\nann;bob\nbob;cy\n",
        "FROM\tTO\nann\tbob\nbob\tcy\n",
        "u|v\nann|bob\nbob|cy\n",
        "Source,Target,Type,Id,Label,Weight\nann,bob,Undirected,0,,1\nbob,cy,Undirected,1,,1\n",
    ],
    ids=["semicolons", "tabs", "bars", "Gephi"],
)
def test_edges_as_other_programs_name_and_part_them(edges: str, tmp_path: Path) -> None:
    graph = read_csv_folder(folder_with(tmp_path, edges))
    assert (graph.node_ids, graph.num_edges) == (("ann", "bob", "cy"), 2)


@pytest.mark.parametrize("name", ["edges.csv.gz", "edges.tsv", "edges.tsv.gz"])
def test_other_forms_of_the_files(name: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, None)
    text = EDGES.encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert read_csv_folder(folder).num_edges == 2
    (folder / "edges.csv").write_bytes(text)
    with pytest.raises(GraphError, match=f"my-graph: holds both edges.csv and {name}; remove one"):
        read_csv_folder(folder)


def test_guesses_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="specformer.graphs")
    nodes = "id;größe;seit;label\nann;1,5;2020-01-01;a\nbob;2;1970-01-03;b\ncy;0,5;;a\n"
    folder = folder_with(tmp_path, "source,target,kind\nann,bob,x\nbob,cy,y\n")
    (folder / "nodes.csv").write_bytes(nodes.encode("latin-1"))
    graph = read_csv_folder(folder)
    assert graph.feature_names == ("größe", "seit")
    np.testing.assert_array_equal(graph.x, np.float32([[1.5, 18262], [2, 2], [0.5, np.nan]]))
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "is not UTF-8 text; it is read as Latin-1 (Windows-1252)",
        "columns are separated by semicolons",
        "commas in numbers are read as decimal points",
        "column 'seit' holds dates, read as days since 1970",
        "columns left out: 'kind'; --weight takes a column as the edges' weights",
    ]


def test_utf_16_as_spreadsheets_write_it(tmp_path: Path) -> None:
    graph = read_csv_folder(folder_with(tmp_path, EDGES.replace(",", "\t").encode("utf-16")))
    assert graph.node_ids == ("ann", "bob", "cy")


def test_features_of_any_kind_and_gaps(tmp_path: Path) -> None:
    nodes = "id,age,member,city,empty\nann,30,yes,Wels,\nbob,NA,No,?,nan\ncy,29,,Graz,\n"
    graph = read_csv_folder(folder_with(tmp_path, EDGES, nodes))
    nan = np.nan
    expected = [[30, 1, 1, nan], [nan, 0, nan, nan], [29, nan, 0, nan]]
    np.testing.assert_array_equal(graph.x, np.float32(expected))
    assert graph.feature_words == {"city": ("Graz", "Wels")}
    write_npz(tmp_path / "same.npz", graph)
    again = read_npz(tmp_path / "same.npz")
    np.testing.assert_array_equal(again.x, graph.x)
    assert again.feature_words == graph.feature_words
    assert again.fingerprint == graph.fingerprint


def test_labels_that_are_not_known_are_no_class(tmp_path: Path) -> None:
    nodes = "id,label\nann,NA\nbob,dog\ncy,nan\ndi,\ned,N/A\nflo,cat\n"
    graph = read_csv_folder(folder_with(tmp_path, EDGES, nodes))
    assert (graph.class_names, graph.y.tolist()) == (("cat", "dog"), [-1, 1, -1, -1, -1, 0])
    (tmp_path / "my-graph" / "nodes.csv").write_text("id,label\nann,1\nbob,None\ncy,0\n")
    assert read_csv_folder(tmp_path / "my-graph").y.tolist() == [1, -1, 0]


def test_a_split_column_is_the_masks_and_no_feature(tmp_path: Path) -> None:
    nodes = "id,age,Split\nann,1,Train\nbob,2,validation\ncy,3,TEST\ndi,4,\ned,5,dev\n"
    graph = read_csv_folder(folder_with(tmp_path, EDGES, nodes))
    assert graph.feature_names == ("age",)
    masks = np.hstack([graph.train_mask, graph.val_mask, graph.test_mask])
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(masks, expected)


@pytest.mark.parametrize(
    ("edges", "nodes", "options", "message"),
    [
        (None, NODES, {}, "has no table of edges, such as edges.csv; it holds 'nodes.csv'"),
        ("", None, {}, "edges.csv: the file is empty"),
        ("source,target\n", None, {}, "edges.csv: the graph has no nodes"),
        (EDGES, "", {}, "nodes.csv: the file is empty"),
        (EDGES, "id\n", {}, "nodes.csv: the graph has no nodes"),
        ("a,b\n1,2\n", None, {}, "edges.csv: needs the columns 'source' and 'target', .* 'a', 'b'"),
        ("SMILES,y\nCCO,2\n", None, {}, "edges.csv: holds molecules, .* its column 'SMILES'"),
        ("source,target\na,b\na\n", None, {}, "edges.csv: row 3 has 1 cell where the header has 2"),
        ("source,target\n\na,b,c\n", None, {}, "edges.csv: row 3 has 3 cells"),
        ("source,source\na,b\n", None, {}, "edges.csv: column 'source' appears more than once"),
        ('source,target\na,"b\n', None, {}, "edges.csv: row 2 cannot be read as CSV"),
        (b"PK\x03\x04\x00\x00", None, {}, "edges.csv: is not text; export it as CSV"),
        (b"\xff\xfea,b", None, {}, "edges.csv: is not text"),
        (EDGES, "id,Label\nann,a\nbob,none\ncy,b\n", {}, "'Label', row 3: 'none' may be a class"),
        (
            EDGES,
            "id,split\nann,0\n",
            {},
            "column 'split', row 2: '0' is not a part of a split; write",
        ),
        (
            EDGES,
            "id,split,val_mask\nann,dev,1\n",
            {},
            "'split' and 'val_mask' both hold a split; remove one",
        ),
        (
            "source,target\nann,bob\nbob,x9\n",
            NODES,
            {},
            "edges.csv: column 'target', row 3: there is no node 'x9' in nodes.csv",
        ),
        (
            "source,target,weight\na,b,1\n\na,c,heavy\n",
            None,
            {},
            "edges.csv: column 'weight', row 4: 'heavy' is not a number",
        ),
        (
            "source,target,weight\na,b,1\na,c,-2\n",
            None,
            {},
            "edges.csv: column 'weight', row 3: the weight -2.0 is negative",
        ),
        (
            "source,target,weight\na,b,nan\n",
            None,
            {},
            "edges.csv: column 'weight', row 2: 'nan' is not a finite number",
        ),
        ("source,target\na,\n", None, {}, "edges.csv: column 'target', row 2: the id is empty"),
        (
            EDGES,
            "id,age\nann,30\nbob,abc\ncy,1\n",
            {},
            "nodes.csv: column 'age', row 3: 'abc' is not a number, as others",
        ),
        (EDGES, "id,val_mask\nann,2\n", {}, "column 'val_mask', row 2: '2' is neither 1 nor 0"),
        (EDGES, "id,age\nann,inf\n", {}, "nodes.csv: column 'age', row 2: 'inf' is not a finite"),
        (EDGES, "id,age\nann,1e39\n", {}, "column 'age', row 2: '1e39' is too large for 32 bits"),
        (EDGES, "id\nann\nbob\nann\n", {}, "column 'id', row 4: the id 'ann' is also in row 2"),
        (EDGES, "id,age\n,3\n", {}, "nodes.csv: column 'id', row 2: the id is empty"),
        (EDGES, NODES, {"id": "key"}, "nodes.csv: there is no column 'key', only 'id', 'a"),
        (EDGES, NODES, {"label": "kind"}, "nodes.csv: there is no column 'kind'"),
        (EDGES, NODES, {"features": ("weight",)}, "nodes.csv: there is no column 'weight'"),
        (
            EDGES,
            None,
            {"label": "kind"},
            "edges.csv: there are only edges, .* to read 'label' from",
        ),
    ],
)
def test_mistakes_are_named_with_file_column_and_row(
    edges: str | bytes | None,
    nodes: str | None,
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
) -> None:
    folder = folder_with(tmp_path, edges, nodes)
    with pytest.raises(GraphError, match=message) as caught:
        read_csv_folder(folder, Columns(**options))
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="nowhere: there is no such folder"):
        read_csv_folder(tmp_path / "nowhere")


def test_a_table_that_unpacks_to_more_than_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "edges.csv.gz"
    path.write_bytes(gzip.compress(b"source,target\n" + b"0,1\n" * 10**6))
    assert path.stat().st_size < 10**4
    monkeypatch.setattr("specformer.graphs.formats.table_file.free_bytes", lambda: 2**20)
    with pytest.raises(GraphError, match=r"edges\.csv\.gz: unpacks to more than 0\.0 GiB"):
        read_csv_folder(tmp_path)
