"""A graph as people keep it in a spreadsheet: a folder with ``edges.csv`` and ``nodes.csv``.

``edges.csv`` has a header with the columns ``source`` and ``target`` (or ``src`` and ``dst``,
``from`` and ``to``, ``u`` and ``v``), and ``weight`` if the edges are weighted; other columns are
left alone. ``nodes.csv`` may be absent; the nodes are then those the edges name. Otherwise it lists
every node once: a column of ids, one of labels if there are any, a column ``split`` or the columns
``train_mask``, ``val_mask`` and ``test_mask`` if the nodes are split, and feature columns. Names of
columns may be written in any case. Ids are text, so ``7`` and ``07`` are different nodes. Rows are
counted as a spreadsheet does: the header is row 1. Either file may be a ``.tsv`` one, or compressed
as ``.csv.gz``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specformer.errors import GraphError
from specformer.graphs.edges import adjacency_from_edges
from specformer.graphs.feature_cells import feature_column
from specformer.graphs.formats.csv_table import CsvTable, csv_name, in_order
from specformer.graphs.graph import Graph

logger = logging.getLogger(__name__)

_FORMS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ID, _LABEL, _SPLIT, _WEIGHT = "id", "label", "split", "weight"
_MASKS = ("train_mask", "val_mask", "test_mask")


def read_csv_folder(
    folder: str | Path,
    id_column: str | None = None,
    label_column: str = _LABEL,
    feature_columns: Sequence[str] | None = None,
) -> Graph:
    r"""Read the graph of a folder with ``edges.csv`` and, if there is one, ``nodes.csv``.

    Nodes keep the order of ``nodes.csv``; without it they are sorted, by number if all ids are
    integers. Classes are sorted likewise, and an empty cell, ``NA`` or ``nan`` is no label; -1 is a
    class like any other here. Feature columns may hold numbers, truth values, dates or words, and
    cells may be empty: see :attr:`Graph.feature_words`. Edges are symmetrised by the rule of
    :mod:`specformer.graphs.edges`.

    Args:
        folder: the folder; its name becomes the graph's.
        id_column: column of ``nodes.csv`` with the ids; by default ``id``, else the first.
        label_column: column with the labels; only ``label`` may be absent.
        feature_columns: columns with the features; by default all others that have a name, but the
            split and the masks.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp(prefix="friends-"))
        >>> _ = (folder / "edges.csv").write_text("source,target\nann,bob\nbob,cy\n")
        >>> _ = (folder / "nodes.csv").write_text("id,age,label\nann,30,cat\nbob,41,dog\ncy,29,\n")
        >>> graph = read_csv_folder(folder)
        >>> graph.node_ids, graph.class_names, graph.y.tolist()
        (('ann', 'bob', 'cy'), ('cat', 'dog'), [0, 1, -1])
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise GraphError(f"{folder}: there is no such folder")
    edges = CsvTable.read(_file(folder, "edges"))
    return _joined(edges, _nodes(folder, id_column, label_column, feature_columns), folder)


def read_edge_list(path: str | Path) -> Graph:
    r"""Read the graph of a single CSV file of edges, written as ``edges.csv`` is.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "k.csv"
        >>> _ = path.write_text("from,to\nann,bob\nbob,cy\n")
        >>> read_edge_list(path)
        Graph('k', nodes=3, edges=2)
    """
    path = Path(path)
    return _joined(CsvTable.read(path), None, path)


def _joined(edges: CsvTable, nodes: dict[str, Any] | None, where: Path) -> Graph:
    ends = edges.endpoints()
    if ends is None:
        known = ", ".join(map(repr, edges.columns))
        raise GraphError(f"{edges.path}: needs the columns 'source' and 'target', but has {known}")
    source, target = ends
    if nodes is None:
        named = {*edges.column(source), *edges.column(target)} - {""}
        nodes = {"node_ids": tuple(in_order(named))}
    index = {node: i for i, node in enumerate(nodes["node_ids"])}
    if not index:
        raise GraphError(f"{where}: the graph has no nodes")
    edge_index = np.stack([edges.positions(source, index), edges.positions(target, index)])
    weight = edges.named(_WEIGHT)
    adjacency = adjacency_from_edges(
        edge_index, len(index), None if weight is None else edges.weights(weight)
    )
    name = where.resolve().name if where.is_dir() else csv_name(where)
    return Graph(adjacency, **nodes, name=name)


def _file(folder: Path, name: str) -> Path:
    """Return the file of that name in any of its forms; the plain one if there is none."""
    forms = [folder / f"{name}{ending}" for ending in _FORMS]
    there = [path for path in forms if path.exists()]
    if len(there) > 1:
        both = " and ".join(path.name for path in there[:2])
        raise GraphError(f"{folder}: holds both {both}; remove one of them")
    return there[0] if there else forms[0]


def _nodes(
    folder: Path, id_column: str | None, label_column: str, feature_columns: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return the fields of :class:`Graph` that ``nodes.csv`` fills, None if there is no file."""
    path = _file(folder, "nodes")
    asked = [id_column, None if label_column == _LABEL else label_column, *(feature_columns or ())]
    asked = [column for column in asked if column is not None]
    if not path.exists():
        if asked:
            raise GraphError(f"{path}: there is no such file to read column {asked[0]!r} from")
        return None
    table = CsvTable.read(path)
    ids = id_column or table.named(_ID) or next(iter(table.columns))
    label = label_column if label_column != _LABEL else table.named(_LABEL)
    split, masks = table.named(_SPLIT), [mask for mask in _MASKS if mask in table.columns]
    if feature_columns is None:
        spoken_for = (ids, label, split, *masks, "")  # pandas' index has no name
        feature_columns = [column for column in table.columns if column not in spoken_for]
    nodes: dict[str, Any] = {"node_ids": tuple(table.index(ids))}
    if label is not None:
        nodes["y"], nodes["class_names"] = table.classes(label)
    nodes |= _features(table, feature_columns)
    if split is not None and split not in feature_columns:
        if masks:
            raise GraphError(f"{path}: columns {split!r} and {masks[0]!r} both tell a split")
        return nodes | _split(table, split)
    return nodes | {mask: table.booleans(mask) for mask in masks}


def _features(table: CsvTable, names: Sequence[str]) -> dict[str, Any]:
    if not names:
        return {}
    read = {name: feature_column(table, name) for name in names}
    words = {name: own for name, (_, own) in read.items() if own is not None}
    x = np.stack([numbers for numbers, _ in read.values()], axis=1)
    return {"x": x, "feature_names": tuple(read), "feature_words": words or None}


def _split(table: CsvTable, column: str) -> dict[str, Any]:
    parts = table.parts(column)
    masks = {mask: parts == number for number, mask in enumerate(_MASKS)}
    told = "%s: column %r is a split: %d train, %d valid, %d test"
    logger.info(told, table.path, column, *(int(mask.sum()) for mask in masks.values()))
    return masks
