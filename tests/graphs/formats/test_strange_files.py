"""Every file is read as it is meant, or refused with a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array
from tests.graphs.formats.strange_files import (
    EDGE_FILES,
    NODE_FILES,
    TEXT_FILES,
    Meant,
    Molecules,
    Strange,
)
from tests.graphs.formats.strange_formats import FORMATS, MOLECULES, PARQUET

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
    masks = {part: getattr(graph, mask)[:, 0] for part, mask in PARTS.items()}
    rows = range(graph.num_nodes)
    return [next((part for part, mask in masks.items() if mask[row]), None) for row in rows]


def targets_of(graphs: GraphSet) -> dict[str, list[Any]]:
    if graphs.y is None:
        return {}
    columns = zip(graphs.task_names or (), graphs.y.T.tolist(), strict=True)
    return {name: [None if np.isnan(each) else each for each in cells] for name, cells in columns}
