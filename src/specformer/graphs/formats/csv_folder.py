"""A graph as people keep it in a spreadsheet: a folder with ``edges.csv`` and ``nodes.csv``.

``edges.csv`` has a header with the columns ``source`` and ``target`` (or ``src`` and ``dst``),
and ``weight`` if the edges are weighted; other columns are left alone. ``nodes.csv`` may be
absent; the nodes are then those the edges name. Otherwise it lists every node once: a column of
ids, one of labels if there are any, the columns ``train_mask``, ``val_mask`` and ``test_mask`` if
the nodes are split, and numeric feature columns. Ids are text, so ``7`` and ``07`` are different
nodes. Rows are counted as a spreadsheet does: the header is row 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specformer.errors import GraphError
from specformer.graphs.edges import adjacency_from_edges
from specformer.graphs.formats.csv_table import CsvTable, in_order
from specformer.graphs.graph import Graph

_ENDPOINTS = (("source", "target"), ("src", "dst"))
_LABEL = "label"
_MASKS = ("train_mask", "val_mask", "test_mask")


def read_csv_folder(
    folder: str | Path,
    id_column: str | None = None,
    label_column: str = _LABEL,
    feature_columns: Sequence[str] | None = None,
) -> Graph:
    r"""Read the graph of a folder with ``edges.csv`` and, if there is one, ``nodes.csv``.

    Nodes keep the order of ``nodes.csv``; without it they are sorted, by number if all ids are
    integers. Classes are sorted likewise, and an empty cell is no label; -1 is a class like any
    other here. Edges are symmetrised by the rule of :mod:`specformer.graphs.edges`.

    Args:
        folder: the folder; its name becomes the graph's.
        id_column: column of ``nodes.csv`` with the ids; by default ``id``, else the first.
        label_column: column with the labels; only ``label`` may be absent.
        feature_columns: columns with the features; by default all others that have a name, but the
            masks.

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
    edges = CsvTable.read(folder / "edges.csv")
    source, target = _endpoints(edges)
    nodes = _nodes(folder / "nodes.csv", id_column, label_column, feature_columns)
    if nodes is None:
        named = {*edges.column(source), *edges.column(target)} - {""}
        nodes = {"node_ids": tuple(in_order(named))}
    index = {node: i for i, node in enumerate(nodes["node_ids"])}
    if not index:
        raise GraphError(f"{folder}: the graph has no nodes")
    edge_index = np.stack([edges.positions(source, index), edges.positions(target, index)])
    weight = edges.weights("weight") if "weight" in edges.columns else None
    return Graph(
        adjacency_from_edges(edge_index, len(index), weight), **nodes, name=folder.resolve().name
    )


def _endpoints(edges: CsvTable) -> tuple[str, str]:
    for source, target in _ENDPOINTS:
        if source in edges.columns and target in edges.columns:
            return source, target
    known = ", ".join(map(repr, edges.columns))
    raise GraphError(f"{edges.path}: needs the columns 'source' and 'target', but has {known}")


def _nodes(
    path: Path, id_column: str | None, label_column: str, feature_columns: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return the fields of :class:`Graph` that ``nodes.csv`` fills, None if there is no file."""
    asked = [id_column, None if label_column == _LABEL else label_column, *(feature_columns or ())]
    asked = [column for column in asked if column is not None]
    if not path.exists():
        if asked:
            raise GraphError(f"{path}: there is no such file to read column {asked[0]!r} from")
        return None
    table = CsvTable.read(path)
    if id_column is None:
        id_column = "id" if "id" in table.columns else next(iter(table.columns))
    if feature_columns is None:
        spoken_for = (id_column, label_column, *_MASKS, "")  # pandas' index has no name
        feature_columns = [column for column in table.columns if column not in spoken_for]
    nodes: dict[str, Any] = {"node_ids": tuple(table.index(id_column))}
    if label_column in table.columns or label_column != _LABEL:
        nodes["y"], nodes["class_names"] = table.classes(label_column)
    if feature_columns:
        hint = f"; words belong in the column {label_column!r}, which holds the classes"
        columns = [table.numbers(column, np.float32, hint=hint) for column in feature_columns]
        nodes |= {"x": np.stack(columns, axis=1), "feature_names": tuple(feature_columns)}
    return nodes | {mask: table.booleans(mask) for mask in _MASKS if mask in table.columns}
