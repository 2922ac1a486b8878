"""Every file is read as it is meant, or refused with a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import coo_array
from tests.graphs.formats.strange_files import (
    EDGE_FILES,
    EDGES,
    TEXT_FILES,
    Meant,
    Molecules,
    Strange,
)
from tests.graphs.formats.strange_formats import FORMATS, MOLECULES, PARQUET
from tests.graphs.formats.strange_nodes import NODE_FILES

from specformer.errors import SpecformerError
from specformer.graphs import Graph, GraphSet, read_graph, read_molecules

GRAPHS = [*EDGE_FILES, *NODE_FILES, *TEXT_FILES, *FORMATS]
PARTS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


def named(cases: Sequence[Strange]) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", named(GRAPHS))
def test_a_graph(case: Strange, tmp_path: Path) -> None:
    check_graph(case, tmp_path)


@pytest.mark.parametrize("case", named(PARQUET))
def test_parquet(case: Strange, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    (check_molecules if isinstance(case.meant, Molecules) else check_graph)(case, tmp_path)


@pytest.mark.parametrize("case", named(MOLECULES))
def test_molecules(case: Strange, tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    check_molecules(case, tmp_path)


SAID = {
    "a stand-in": (
        {"nodes.csv": "id,age\nann,30\nbob,-999\ncy,-999\n"},
        "column 'age': -999 is in 2 cells, far from all other numbers; leave them empty if it",
    ),
    "a stand-in for labels": (
        {"nodes.csv": "id,label\nann,0.5\nbob,-999\ncy,-999\n"},
        "column 'label': -999 is in 2 cells, far from all other numbers; leave them empty if it",
    ),
    "points between thousands": (
        {"nodes.csv": "id;pay\nann;1.200\nbob;34.500\ncy;7\n"},
        "column 'pay': 1.200 is read as a number with a fraction; if thousands are meant, write it",
    ),
    "commas between thousands": (
        {"nodes.csv": "id;pay\nann;1,200\nbob;34,500\ncy;7\n"},
        "column 'pay': 1,200 is read as a number with a fraction; if thousands are meant, write it "
        "without the comma",
    ),
    "a missing label that may be a class": (
        {"nodes.csv": "id,label\nann,H\nbob,-\ncy,E\n"},
        "column 'label': '-' is read as no label; write another word if it is a class",
    ),
    "a class that may be none": (
        {"nodes.csv": "id,label\nann,dog\nbob,Unknown\ncy,cat\n"},
        "Unknown in column 'label' is read as a class; leave cells without a label empty",
    ),
    "digits that are lost": (
        {"nodes.csv": "id,at\nann,1600000001\nbob,1600000002\ncy,1600000003\n"},
        "float32 rounds the numbers of column 'at' to multiples of 128; subtract the",
    ),
    "a file that is not read": (
        {"labels.csv": "id,label\nann,dog\n", "notes.md": ""}, ": not read: labels.csv",
    ),
    "ids that are left out": (
        {"nodes.csv": "id,name,fold\nann,A,0\nbob,B,1\ncy,C,0\n"},
        "columns left out, as they tell nodes apart or number folds: 'name', 'fold'; --features",
    ),
    "codes": (
        {"nodes.csv": "id,zip\nann,01234\nbob,20095\ncy,\n"},
        "column 'zip': 01234 is read as the number 1234; --set columns.zip=category takes codes",
    ),
    "labels under another name": (
        {"nodes.csv": "id,label,kind,size\nann,a,7,1\nbob,b,8,1\ncy,a,7,2\n"
         + "".join(f"n{i},{'ab'[i % 2]},{7 + i % 2},{i}\n" for i in range(20))},
        "column 'kind' gives away the label, but is a feature; --set columns.kind=drop leaves it",
    ),
    "several labels in a cell": (
        {"nodes.csv": "id,label\nann,dog\nbob,dog|cat\ncy,cat\n"},
        "'dog|cat' in column 'label' is read as a class of its own; to give nodes several labels, ",
    ),
    "ends in another language": (
        {"edges.csv": "von,nach\nann,bob\n", "nodes.csv": "id\nann\nbob\n"},
        "columns 'von', 'nach' hold the ends of the edges",
    ),
    "thousands with a sign": (
        {"nodes.csv": "id;pay\nann;1.200 €\nbob;34.500 €\ncy;7 €\n"},
        "column 'pay': 1.200 is read as a number with a fraction; if thousands are meant, write it",
    ),
    "edges of weight 0": (
        {"edges.csv": "source,target,weight\nann,bob,0\nbob,cy,1\nann,cy,0.0\n"},
        "edges.csv: 2 edges of weight 0 are left out",
    ),
    "a unit": ({"nodes.csv": "id,size\nann,3 cm\nbob,4 cm\ncy,\n"}, "without its unit, cm"),
}  # fmt: skip


@pytest.mark.parametrize(("files", "told"), SAID.values(), ids=SAID.keys())
def test_what_is_guessed_is_said(
    files: Mapping[str, str], told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    read_graph(Strange("said", {"edges.csv": EDGES, **files}, "").write(tmp_path))
    assert told in caplog.text


def test_a_single_number_loses_no_digits_that_matter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {"edges.csv": EDGES, "nodes.csv": "id,a\nann,0.1234567\nbob,\ncy,\n"}
    read_graph(Strange("one", files, "").write(tmp_path))
    assert "float32" not in caplog.text


def test_units_are_kept(tmp_path: Path) -> None:
    files = {"edges.csv": EDGES, "nodes.csv": "id,size,age\nann,3 cm,1\nbob,4 cm,2\ncy,,3\n"}
    graph = read_graph(Strange("units", files, "").write(tmp_path))
    assert graph.feature_units == {"size": "cm"}


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            "smiles,relation,y\nCCO,'=',1\nN,'>',2\n",
            "column 'relation' holds '=', '>': some numbers",
        ),
        ("smiles,y\nCCO,-999\nN,2\nO,-999\n", "column 'y': -999 is in 2 cells, far from all"),
        ("smiles,y,units\nCCO,1,nM\nN,2,uM\n", "column 'units' holds 'nM', 'uM': numbers have"),
    ],
)
def test_what_columns_say_of_targets_is_said(
    table: str, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")
    (tmp_path / "own.csv").write_text(table)
    read_molecules(tmp_path / "own.csv")
    assert told in caplog.text


def test_that_edges_have_no_direction_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    nx.write_graphml(nx.DiGraph([(0, 1)]), tmp_path / "arrow.graphml")
    read_graph(tmp_path / "arrow.graphml")
    assert "arrow.graphml: is directed; its edges are read as undirected" in caplog.text


def test_attributes_of_several_values_are_said_to_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    graph = nx.Graph([("ann", "bob")])
    graph.nodes["ann"]["viz"] = {"size": 3.0}
    graph.nodes["bob"]["age"] = 41
    nx.write_gexf(graph, tmp_path / "seen.gexf")
    assert read_graph(tmp_path / "seen.gexf").feature_names == ("age",)
    told = "seen.gexf: attributes of a node left out, as they hold several values: 'viz'"
    assert told in caplog.text


def test_numbers_that_float32_holds_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    x = np.array([[2.0**24, 0.1, np.nan], [2.0**24 + 2, 0.2, np.nan]])
    Graph(coo_array((2, 2)), x=x)
    Graph(coo_array((2, 2)), x=np.array([[7, 0], [7, 9]]))
    assert not caplog.text


def check_graph(case: Strange, folder: Path) -> None:
    path = case.write(folder)
    if isinstance(case.meant, str):
        assert refused(read_graph, path, case, folder) == case.meant
        return
    assert isinstance(case.meant, Meant)
    graph = read_graph(path, case.said)
    ids = graph.node_ids or tuple(map(str, range(graph.num_nodes)))
    assert ids == tuple(case.meant.ids)
    assert edges_of(graph, ids) == dict(case.meant.edges)
    assert features_of(graph) == {name: list(cells) for name, cells in case.meant.features.items()}
    assert labels_of(graph) == (None if case.meant.labels is None else list(case.meant.labels))
    assert parts_of(graph) == (None if case.meant.parts is None else list(case.meant.parts))


def check_molecules(case: Strange, folder: Path) -> None:
    path = case.write(folder)
    if isinstance(case.meant, str):
        assert refused(read_molecules, path, case, folder) == case.meant
        return
    assert isinstance(case.meant, Molecules)
    graphs: GraphSet = read_molecules(path, case.said).graphs
    assert graphs.smiles == tuple(case.meant.smiles)
    assert graphs.ids == (None if case.meant.ids is None else tuple(case.meant.ids))
    assert targets_of(graphs) == {name: list(cells) for name, cells in case.meant.targets.items()}
    if case.meant.parts is not None:
        indices = {"train": graphs.train_idx, "val": graphs.valid_idx, "test": graphs.test_idx}
        found = {int(i): part for part, index in indices.items() for i in index}
        assert [found.get(i) for i in range(len(graphs))] == list(case.meant.parts)


def refused(read: Any, path: Path, case: Strange, folder: Path) -> str:
    with pytest.raises(SpecformerError) as caught:
        read(path, case.said)
    return str(caught.value).replace(f"{folder}/", "").replace(str(folder), ".")


def edges_of(graph: Graph, ids: Sequence[str]) -> dict[tuple[str, str], float]:
    entries = coo_array(graph.adjacency)
    found = zip(*entries.coords, entries.data.tolist(), strict=True)
    ends = ((sorted((ids[i], ids[j])), weight) for i, j, weight in found if i <= j)
    return {(one, other): weight for (one, other), weight in ends}


def features_of(graph: Graph) -> Mapping[str, list[Any]]:
    if graph.x is None:
        return {}
    names = graph.feature_names or tuple(map(str, range(graph.num_features)))
    words = graph.feature_words or {}
    found: dict[str, list[Any]] = {}
    for name, column in zip(names, np.asarray(graph.x).T.tolist(), strict=True):
        known = words.get(name)
        cells = [None if np.isnan(each) else each for each in column]
        found[name] = [known[int(each)] if known and each is not None else each for each in cells]
    return found


def labels_of(graph: Graph) -> list[str | None] | None:
    if graph.y is None:
        return None
    names = graph.class_names or tuple(map(str, range(graph.num_classes)))
    return [None if label < 0 else names[label] for label in graph.y.tolist()]


def parts_of(graph: Graph) -> list[str | None] | None:
    if graph.train_mask is None:
        return None
    masks = {
        part: marked[:, 0]
        for part, mask in PARTS.items()
        if (marked := getattr(graph, mask)) is not None
    }
    rows = range(graph.num_nodes)
    return [next((part for part, mask in masks.items() if mask[row]), None) for row in rows]


def targets_of(graphs: GraphSet) -> dict[str, list[Any]]:
    if graphs.y is None:
        return {}
    columns = zip(graphs.task_names or (), graphs.y.T.tolist(), strict=True)
    return {name: [None if np.isnan(each) else each for each in cells] for name, cells in columns}
