"""A graph as people keep it in a spreadsheet: a folder with ``edges.csv`` and ``nodes.csv``.

``docs/reference/graph-files.md`` says what may be in them and how they may be called. Rows are
counted as a spreadsheet does: the header is row 1.

A single file may list edges without a header, one per row: ``1 2``, ``1,2``, or ``1 2 0.5`` with a
weight. Rows that start with ``#`` or ``%`` are comments. Columns are then called 1, 2, …; a third
column of numbers is the weight. The attributes that NetworkX writes, ``{'weight': 0.5}``, are read
too. Ambiguous files are refused: a first row of counts, a third column of names or of times.
"""

from __future__ import annotations

import ast
import io
import logging
import re
from pathlib import Path
from typing import Any

from specformer.errors import GraphError
from specformer.graphs.columns import Columns, quoted
from specformer.graphs.formats.table import Table, is_number
from specformer.graphs.formats.table_file import (
    COMMENTS,
    TABLES,
    bare_name,
    decoded,
    is_table,
    read_table,
    say_how,
    separator,
)
from specformer.graphs.formats.table_graph import graph_of_tables
from specformer.graphs.graph import Graph

logger = logging.getLogger(__name__)

_EDGES = ("edges", "edge", "links", "relationships", "edgelist")
_NODES = ("nodes", "node", "vertices")
#: Endings of files of edges and nodes in a folder.
_TABLES = (*TABLES, ".txt", ".txt.gz")
#: Whole numbers from here on are seconds since 1970, not weights.
_TIME = 10**8
_SAY = "name the ends of an edge, such as --source 1 --target 2 --weight 3"


def read_csv_folder(
    folder: str | Path, columns: Columns | None = None, *, labels: bool = True
) -> Graph:
    r"""Read the graph of a folder with ``edges.csv`` and, if there is one, ``nodes.csv``.

    Nodes keep the order of ``nodes.csv``; without it they are sorted, by number if all ids are
    integers. Classes are sorted in the same way. An empty cell, ``NA`` or ``nan`` is no label, and
    -1 is a class like any other. Feature columns may hold numbers, truth values, dates or words;
    cells may be empty: see :attr:`Graph.feature_words`. Edges are symmetrised by the rule of
    :mod:`specformer.graphs.graph`.

    Args:
        folder: the folder; its name becomes the graph's.
        columns: the roles of columns, where their names do not tell.
        labels: whether labels and a split that ``columns`` names must exist.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp(prefix="friends-"))
        >>> _ = (folder / "edges.csv").write_text("source,target\nann,bob\nbob,cy\n")
        >>> _ = (folder / "nodes.csv").write_text("id,age,pet\nann,30,cat\nbob,41,dog\ncy,29,\n")
        >>> graph = read_csv_folder(folder, Columns(label="pet"))
        >>> graph.node_ids, graph.class_names, graph.y.tolist()
        (('ann', 'bob', 'cy'), ('cat', 'dog'), [0, 1, -1])
    """
    folder, columns = Path(folder), columns or Columns()
    if not folder.is_dir():
        raise GraphError(f"{folder}: there is no such folder")
    edge_file, node_file = _file(folder, _EDGES), _file(folder, _NODES)
    others = {path.name for path in folder.iterdir() if path not in (edge_file, node_file)}
    if edge_file is None:
        held = others if node_file is None else {node_file.name, *others}
        there = f"it holds {quoted(sorted(held))}" if held else "it is empty"
        raise GraphError(f"{folder}: has no table of edges, such as edges.csv; {there}")
    if unread := sorted(name for name in others if name.lower().endswith(_TABLES)):
        logger.info("%s: not read: %s", folder, ", ".join(unread))
    edges, told = read_edges(edge_file, columns)
    nodes = None if node_file is None else read_table(node_file)
    return graph_of_tables(edges, nodes, told, folder.resolve().name, labels=labels)


def read_edge_list(path: Path, columns: Columns, *, labels: bool = True) -> Graph:
    """Read the graph of a single file of edges: a table, or text with or without a header."""
    edges, told = read_edges(path, columns)
    return graph_of_tables(edges, None, told, bare_name(path), labels=labels)


def _file(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the file called as the first name, else the only one whose last word is a name."""
    forms = [folder / f"{names[0]}{ending}" for ending in _TABLES]
    there = sorted(path for path in forms if path.exists())
    if not there:
        tables = sorted(path for path in folder.iterdir() if path.name.lower().endswith(_TABLES))
        last_word = re.compile(rf"(.*[^a-z0-9])?({'|'.join(names)})[^a-z0-9]*")
        there = [path for path in tables if last_word.fullmatch(bare_name(path).casefold())]
        if len(there) == 1:
            logger.info("%s: %s holds the %s", folder, there[0].name, names[0])
    if len(there) > 1:
        both = " and ".join(path.name for path in there[:2])
        raise GraphError(f"{folder}: holds both {both}; remove one of them")
    return there[0] if there else None


def read_edges(path: Path, columns: Columns) -> tuple[Table, Columns]:
    """Read a table or a text file of edges, and the roles of its columns.

    Without a header, columns are called 1, 2, …. The first row of a table is its header, unless it
    starts with two numbers; that of a text file only if it holds words, and all below numbers.
    """
    if is_table(path):
        table = read_table(path)
        if not _has_no_header(path, list(table.columns), columns):
            return table, columns
        logger.info("%s: has no header; its columns are called 1, 2, …", path)
        return _numbered(path, *_rows(path), columns)
    rows, lines = _rows(path)
    if not rows:
        raise GraphError(f"{path}: there are no edges in the file")
    if any("smiles" in cell.casefold() for cell in rows[0]):
        raise GraphError(
            f"{path}: holds molecules, judging by its first row; rename it to .csv or .smi"
        )
    if rows[1:] and _is_header(rows[0], rows[1:]):
        return read_table(path), columns
    return _numbered(path, rows, lines, columns)


def _has_no_header(path: Path, header: list[str], columns: Columns) -> bool:
    """Whether the first row is an edge: two numbers. 0 and 1 may also be names given by pandas.

    If the user names columns by numbers, the file has no header, unless it has such names.
    """
    asked = {columns.source or "", columns.target or ""} - {""}
    if asked:
        return all(map(str.isdigit, asked)) and not asked <= {*header}
    if len(header) < 2 or not all(map(str.isdigit, header[:2])):
        return False
    if header == [str(place) for place in range(len(header))]:
        raise GraphError(
            f"{path}: the first row, {' '.join(header)!r}, may be an edge or the columns' names; "
            "put the header source,target above it, or in its place"
        )
    return True


def _rows(path: Path) -> tuple[list[list[str]], list[int]]:
    """The cells of each row of a text file, and the rows' numbers."""

    def parse(text: io.TextIOWrapper, encoding: str) -> tuple[list[list[str]], list[int]]:
        rows: list[list[str]] = []
        lines: list[int] = []
        parted_by: str | None = None
        for number, line in enumerate(text, start=1):
            line = line.strip().lstrip("\ufeff")
            if not line or line.startswith(COMMENTS):
                continue
            if not rows:
                bare = line.replace('"', "")
                found = separator(bare, bare)
                parted_by = None if found == " " else found
                say_how(path, encoding)
            rows.append(_cells(line, parted_by))
            lines.append(number)
        return rows, lines

    return decoded(path, parse)


def _cells(line: str, parted_by: str | None) -> list[str]:
    if line.endswith("}") and parted_by is None:  # attributes as a Python dictionary
        ends, _, told = line.partition("{")
        try:
            found: Any = ast.literal_eval("{" + told)
        except (ValueError, SyntaxError):
            return [*ends.split(), "{" + told]
        weighted = isinstance(found, dict) and "weight" in found
        return [*ends.split(), *([str(found["weight"])] if weighted else [])]
    cells = [cell.strip().strip("\"'") for cell in line.split(parted_by)]
    while len(cells) > 1 and not cells[-1]:  # a separator may end rows too
        cells.pop()
    return cells


def _is_header(first: list[str], rest: list[list[str]]) -> bool:
    """Whether the first row names columns: it holds words, and all below hold numbers."""
    if Table(Path(), {name: [] for name in first}, []).endpoints() is not None:
        return True
    below = (cell for row in rest for cell in row[:2])
    return not any(map(is_number, first[:2])) and all(map(is_number, below))


def _numbered(
    path: Path, rows: list[list[str]], lines: list[int], columns: Columns
) -> tuple[Table, Columns]:
    """Return the rows as columns 1, 2, …; refuse other lengths and a first row of counts."""
    width = len(rows[0])
    if width < 2:
        other = "; molecules are read from files called .smi or .csv"
        raise GraphError(f"{path}: row {lines[0]} has 1 cell; an edge has two ends{other}")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            raise GraphError(f"{path}: row {line} has {cells} where row {lines[0]} has {width}")
    if len(rows) > 1 and _are_counts(rows[0], rows[1:]):
        told = f"row {lines[0]}, {' '.join(rows[0])!r}, looks like counts"
        raise GraphError(
            f"{path}: {told}, as {len(rows) - 1} edges follow; remove it, or put the header "
            "'source target' above it if it is an edge"
        )
    named = {str(place): list(cells) for place, cells in enumerate(zip(*rows, strict=True), 1)}
    table = Table(path, named, lines)
    return table, columns if columns.source is not None else columns.over(_ends(table))


def _are_counts(first: list[str], rest: list[list[str]]) -> bool:
    """Whether the first row holds the number of nodes and the number of edges that follow."""
    ends = {cell for row in rest for cell in row[:2]}
    highest = max((int(cell) for cell in ends if cell.isdigit()), default=0)
    nodes = {str(len(ends)), str(highest), str(highest + 1)}
    return first[0] in nodes and first[-1] == str(len(rest))


def _ends(table: Table) -> Columns:
    """The roles of columns without names: two ends, and weights in a third column."""
    if len(table.columns) == 2:
        return Columns(source="1", target="2")
    table.refuse_matrix()
    if len(table.columns) > 3:
        raise GraphError(f"{table.path}: has {len(table.columns)} columns without names; {_SAY}")
    first, second, third = table.columns.values()
    alone = {name for name in ("1", "2") if len(set(table.columns[name])) == 1 < len(third)}
    if alone or (all(map(is_number, first)) and not any(map(is_number, second))):
        strange = min(alone, default="2")
        told = f"column {strange} does not look like nodes; name the ends of an edge, such"
        raise GraphError(f"{table.path}: {told} as --source {3 - int(strange)} --target 3")
    for row, cell in enumerate(third):
        if not is_number(cell):
            raise table.error("3", row, f"{cell!r} is not a weight; {_SAY}")
    if all(cell.isdigit() and int(cell) >= _TIME for cell in third):
        raise GraphError(f"{table.path}: column 3 holds times rather than weights; {_SAY}")
    logger.info("%s: column 3 is read as the edges' weights", table.path)
    return Columns(source="1", target="2", weight="3")
