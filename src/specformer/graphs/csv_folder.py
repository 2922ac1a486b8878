"""A graph as people keep it in a spreadsheet: a folder with ``edges.csv`` and ``nodes.csv``.

``edges.csv`` has a header with the columns ``source`` and ``target`` (or ``src`` and ``dst``),
and ``weight`` if the edges are weighted; other columns are left alone. ``nodes.csv`` may be
absent; the nodes are then those the edges name. Otherwise it lists every node once: a column of
ids, one of labels if there are any, and numeric feature columns. Ids are text, so ``7`` and ``07``
are different nodes. Rows are counted as a spreadsheet does: the header is row 1.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs.edges import adjacency_from_edges
from specformer.graphs.graph import Graph

_ENDPOINTS = (("source", "target"), ("src", "dst"))
_LABEL = "label"


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
        feature_columns: columns with the features; by default all the others.

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
    edges = _Table.read(folder / "edges.csv")
    source, target = _endpoints(edges)
    nodes = _nodes(folder / "nodes.csv", id_column, label_column, feature_columns)
    if nodes is None:
        named = {*edges.column(source), *edges.column(target)} - {""}
        nodes = {"node_ids": tuple(_in_order(named))}
    index = {node: i for i, node in enumerate(nodes["node_ids"])}
    if not index:
        raise GraphError(f"{folder}: the graph has no nodes")
    edge_index = np.stack([edges.positions(source, index), edges.positions(target, index)])
    weight = edges.weights("weight") if "weight" in edges.columns else None
    return Graph(
        adjacency_from_edges(edge_index, len(index), weight), **nodes, name=folder.resolve().name
    )


@dataclass(frozen=True)
class _Table:
    """A CSV file in memory: its columns of text by name, and the line each row ends on.

    Columns, not rows: a list for each of a million rows keeps the garbage collector busy.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    @classmethod
    def read(cls, path: Path) -> _Table:
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                return cls._parse(path, csv.reader(file, skipinitialspace=True, strict=True))
        except FileNotFoundError:
            raise GraphError(f"{path}: there is no such file") from None
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise GraphError(f"{path}: is not UTF-8 text, it has a byte {byte:#x}") from None
        except (OSError, csv.Error) as error:
            raise GraphError(f"{path}: cannot be read as CSV: {error}") from None

    @classmethod
    def _parse(cls, path: Path, reader: Any) -> _Table:
        header = tuple(name.strip() for name in next(reader, ()))
        if not header:
            raise GraphError(f"{path}: the file is empty; its first row must name the columns")
        for column in header:
            if header.count(column) > 1:
                raise GraphError(f"{path}: column {column!r} appears more than once")
        table = cls(path, {name: [] for name in header}, [])
        add_cell = [cells.append for cells in table.columns.values()]
        for row in reader:
            if len(row) == len(header):
                for add, cell in zip(add_cell, row, strict=True):
                    add(cell.strip())
                table.lines.append(reader.line_num)
            elif row:  # a blank line has no cells at all
                cells = f"{len(row)} cells where the header has {len(header)}"
                raise GraphError(f"{path}: row {reader.line_num} has {cells}")
        return table

    def column(self, name: str) -> list[str]:
        if name not in self.columns:
            known = ", ".join(map(repr, self.columns))
            raise GraphError(f"{self.path}: there is no column {name!r}, only {known}")
        return self.columns[name]

    def error(self, column: str, row: int, problem: str) -> GraphError:
        return GraphError(f"{self.path}: column {column!r}, row {self.lines[row]}: {problem}")

    def numbers(self, name: str, dtype: type[Any] = np.float64) -> NDArray[Any]:
        cells = self.column(name)
        values = np.empty(len(cells), dtype=np.float64)
        for row, cell in enumerate(cells):
            try:
                values[row] = float(cell)
            except ValueError:
                raise self.error(name, row, f"{cell!r} is not a number") from None
        with np.errstate(over="ignore"):  # what overflows is refused below
            numbers: NDArray[Any] = values.astype(dtype)
        bad = ~np.isfinite(numbers)
        if bad.any():
            row = int(bad.argmax())
            raise self.error(name, row, f"{cells[row]!r} is not a finite number")
        return numbers

    def weights(self, name: str) -> NDArray[np.float64]:
        weights = self.numbers(name)
        negative = weights < 0
        if negative.any():
            row = int(negative.argmax())
            raise self.error(name, row, f"the weight {weights[row]} is negative")
        return weights

    def index(self, name: str) -> dict[str, int]:
        """Return the position of each id, refusing an id that is empty or appears twice."""
        index: dict[str, int] = {}
        for row, cell in enumerate(self.column(name)):
            if not cell:
                raise self.error(name, row, "the id is empty")
            if cell in index:
                raise self.error(
                    name, row, f"the id {cell!r} is also in row {self.lines[index[cell]]}"
                )
            index[cell] = row
        return index

    def positions(self, name: str, index: Mapping[str, int]) -> NDArray[np.int64]:
        cells = self.column(name)
        try:
            return np.fromiter(map(index.__getitem__, cells), np.int64, len(cells))
        except KeyError as error:
            cell = error.args[0]
            problem = f"there is no node {cell!r} in nodes.csv" if cell else "the id is empty"
            raise self.error(name, cells.index(cell), problem) from None

    def classes(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        cells = self.column(name)
        names = _in_order({cell for cell in cells if cell})
        number = {"": -1} | {each: i for i, each in enumerate(names)}
        return np.array([number[cell] for cell in cells], dtype=np.int64), tuple(names)


def _endpoints(edges: _Table) -> tuple[str, str]:
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
    table = _Table.read(path)
    if id_column is None:
        id_column = "id" if "id" in table.columns else next(iter(table.columns))
    if feature_columns is None:
        spoken_for = (id_column, label_column)
        feature_columns = [column for column in table.columns if column not in spoken_for]
    nodes: dict[str, Any] = {"node_ids": tuple(table.index(id_column))}
    if label_column in table.columns or label_column != _LABEL:
        nodes["y"], nodes["class_names"] = table.classes(label_column)
    if feature_columns:
        columns = [table.numbers(column, np.float32) for column in feature_columns]
        nodes |= {"x": np.stack(columns, axis=1), "feature_names": tuple(feature_columns)}
    return nodes


def _in_order(names: Iterable[str]) -> list[str]:
    """Sort by number if every name is an integer, else by the alphabet."""
    names = list(names)
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)
