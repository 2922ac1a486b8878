"""Files that NetworkX reads: GraphML, GML and GEXF, each with what it knows of nodes and edges.

Attributes of nodes and edges are columns, as those of ``nodes.csv`` and ``edges.csv`` are. An
attribute ``label`` that is different on every node is its name, not its class.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from specformer.errors import GraphError
from specformer.graphs.columns import Columns
from specformer.graphs.formats.csv_dialect import opened
from specformer.graphs.formats.table import Table
from specformer.graphs.formats.table_file import bare_name, cell_text
from specformer.graphs.formats.table_graph import graph_of_tables
from specformer.graphs.graph import Graph

#: Names of the formats by their endings.
NETWORKX = {".graphml": "GraphML", ".gml": "GML", ".gexf": "GEXF"}
#: Names of our columns, which no attribute has.
_SOURCE, _TARGET, _ID = "source", "target", "id"


def read_networkx_file(
    path: Path, ending: str, columns: Columns | None = None, *, labels: bool = True
) -> Graph:
    """Read a file by its ending, one of ``NETWORKX``."""
    columns = columns or Columns()
    for said in ("id", "source", "target"):
        if getattr(columns, said) is not None:
            raise GraphError(f"{path}: says itself what its nodes are; leave --{said} out")
    return graph_from_networkx(_read(path, ending), path, columns, labels=labels)


def graph_from_networkx(found: Any, path: Path, columns: Columns, *, labels: bool = True) -> Graph:
    """Return a NetworkX graph with its attributes as columns; ``path`` names it in errors."""
    nodes = _table(path, found.nodes(data=True), "node")
    edges = _table(path, ((None, data) for *_, data in found.edges(data=True)), "edge")
    ends = zip(*((str(u), str(v)) for u, v, *_ in found.edges(data=True)), strict=True)
    sources, targets = ends if found.number_of_edges() else ((), ())
    nodes.columns[_ID] = [str(node) for node in found.nodes]
    edges.columns.update({_SOURCE: list(sources), _TARGET: list(targets)})
    if "weight" in edges.columns:  # 1 where only some edges have one
        edges.columns["weight"] = [cell or "1" for cell in edges.columns["weight"]]
    told = Columns(id=_ID, source=_SOURCE, target=_TARGET).over(columns)
    return graph_of_tables(edges, nodes, told, bare_name(path), labels=labels)


def _read(path: Path, ending: str) -> Any:
    import networkx as nx

    readers: dict[str, Callable[[Any], Any]] = {
        ".graphml": nx.read_graphml,
        ".gexf": nx.read_gexf,
        ".gml": _gml,
    }
    try:
        with opened(path) as file:
            return readers[ending](io.BytesIO(file.read()))
    except (
        nx.NetworkXException, ParseError, OSError, EOFError, zlib.error, gzip.BadGzipFile,
        LookupError, ValueError, TypeError, AttributeError,
    ) as error:  # fmt: skip
        reason = str(error).partition("\n")[0].rstrip(".")
        raise GraphError(f"{path}: cannot be read as {NETWORKX[ending]}: {reason}") from None


def _gml(file: io.BytesIO) -> Any:
    """Read GML by its nodes' numbers; edges that are written twice are allowed."""
    import networkx as nx

    lines = file.read().decode("utf-8", errors="replace").splitlines()
    try:
        return nx.parse_gml(lines, label="id")
    except nx.NetworkXError as error:
        if not str(error).startswith("edge ") or "duplicated" not in str(error):
            raise
    text = "\n".join(lines).replace("graph", "\0", 1)
    opening = text.index("[", text.index("\0"))
    several = f"{text[: opening + 1]} multigraph 1 {text[opening + 1 :]}".replace("\0", "graph")
    return nx.parse_gml(several, label="id")


def _table(path: Path, rows: Iterable[tuple[Any, dict[str, Any]]], row: str) -> Table:
    """Return attributes as columns of text; those of several values are left out."""
    attributes = [data for _, data in rows]
    names = dict.fromkeys(name for data in attributes for name in data)
    plain = [
        name
        for name in names
        if not any(isinstance(data.get(name), list | dict | tuple) for data in attributes)
    ]
    cells = {str(name): [cell_text(data.get(name)) for data in attributes] for name in plain}
    return Table(path, cells, range(1, len(attributes) + 1), row=row)
