"""A graph as people keep it in a spreadsheet: a folder with ``edges.csv`` and ``nodes.csv``.

``edges.csv`` has a header with the columns ``source`` and ``target`` (or ``src`` and ``dst``,
``from`` and ``to``, ``u`` and ``v``), and ``weight`` if the edges are weighted; other columns are
left alone. ``nodes.csv`` may be absent; the nodes are then those the edges name. Otherwise it lists
every node once: a column of ids, one of labels if there are any, a column ``split`` or the columns
``train_mask``, ``val_mask`` and ``test_mask`` if the nodes are split, and feature columns. Names of
columns may be written in any case. Ids are text, so ``7`` and ``07`` are different nodes. Rows are
counted as a spreadsheet does: the header is row 1. Either file may be a ``.tsv`` or ``.parquet``
one, or compressed as ``.csv.gz``, and be called as other programs do: ``links`` or
``relationships``, ``vertices``, or ``my-edges.csv`` and ``my-nodes.csv``.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from specformer.errors import GraphError
from specformer.graphs.columns import Columns
from specformer.graphs.formats.edge_list import read_edges
from specformer.graphs.formats.table_file import TABLES, bare_name, is_table, read_table
from specformer.graphs.formats.table_graph import graph_of_tables
from specformer.graphs.graph import Graph

logger = logging.getLogger(__name__)

_EDGES = ("edges", "edge", "links", "relationships", "edgelist")
_NODES = ("nodes", "node", "vertices")


def read_csv_folder(
    folder: str | Path, columns: Columns | None = None, *, labels: bool = True
) -> Graph:
    r"""Read the graph of a folder with ``edges.csv`` and, if there is one, ``nodes.csv``.

    Nodes keep the order of ``nodes.csv``; without it they are sorted, by number if all ids are
    integers. Classes are sorted likewise, and an empty cell, ``NA`` or ``nan`` is no label; -1 is a
    class like any other here. Feature columns may hold numbers, truth values, dates or words, and
    cells may be empty: see :attr:`Graph.feature_words`. Edges are symmetrised by the rule of
    :mod:`specformer.graphs.edges`.

    Args:
        folder: the folder; its name becomes the graph's.
        columns: which column is what, where their names do not tell.
        labels: whether labels and a split that ``columns`` names have to be there.

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
    edges, told = read_edges(_file(folder, _EDGES) or folder / "edges.csv", columns)
    path = _file(folder, _NODES)
    nodes = None if path is None else read_table(path)
    return graph_of_tables(edges, nodes, told, folder.resolve().name, labels=labels)


def read_edge_list(
    path: str | Path, columns: Columns | None = None, *, labels: bool = True
) -> Graph:
    r"""Read the graph of a single table of edges, written as ``edges.csv`` is.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "k.csv"
        >>> _ = path.write_text("from,to\nann,bob\nbob,cy\n")
        >>> read_edge_list(path)
        Graph('k', nodes=3, edges=2)
    """
    edges, told = read_edges(Path(path), columns or Columns())
    return graph_of_tables(edges, None, told, bare_name(Path(path)), labels=labels)


def _file(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the file of the first of the names, else the only one whose name ends in one."""
    forms = [folder / f"{names[0]}{ending}" for ending in TABLES]
    there = sorted(path for path in forms if path.exists())
    if not there:
        tables = sorted(path for path in folder.iterdir() if is_table(path))
        there = [path for path in tables if _last_word(bare_name(path)) in names]
        if len(there) == 1:
            logger.info("%s: %s holds the %s", folder, there[0].name, names[0])
    if len(there) > 1:
        both = " and ".join(path.name for path in there[:2])
        raise GraphError(f"{folder}: holds both {both}; remove one of them")
    return there[0] if there else None


def _last_word(name: str) -> str:
    """The last word of a file's name, in small letters.

    Example:
        >>> _last_word("my-graph [Edges]"), _last_word("knowledge")
        ('edges', 'knowledge')
    """
    words = re.findall("[a-z0-9]+", name.casefold())
    return words[-1] if words else ""
