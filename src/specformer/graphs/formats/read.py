"""Read a graph from a file or folder in any format."""

from __future__ import annotations

import gzip
import io
import logging
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
from scipy.io import mmread
from scipy.sparse import csr_array, load_npz

from specformer.errors import GraphError
from specformer.files.atomic import is_special
from specformer.files.documents import parse_json
from specformer.files.npz_archive import DAMAGE, naming
from specformer.graphs.columns import Columns, quoted
from specformer.graphs.formats.csv_folder import read_csv_folder, read_edge_list
from specformer.graphs.formats.npz_file import read_npz
from specformer.graphs.formats.table import Table
from specformer.graphs.formats.table_file import bare_name, cell_text, is_table, opened, unreadable
from specformer.graphs.formats.table_graph import graph_of_tables
from specformer.graphs.graph import Graph, symmetrised

logger = logging.getLogger(__name__)
_DIRECTED = "%s: is directed; its edges are read as undirected"

#: Formats that NetworkX reads, by file ending.
NETWORKX = {".graphml": "GraphML", ".gml": "GML", ".gexf": "GEXF"}
#: Node-link data, as NetworkX and D3 write them.
_JSON = ".json"
#: Endings of text files that hold a list of edges.
EDGE_TEXT = (".edges", ".edgelist", ".el", ".txt")
#: Endings of files without named columns.
_ARRAYS = (".npz", ".pt", ".mtx")
#: Endings of all files that hold one graph, except tables.
GRAPH_FILES = (*NETWORKX, _JSON, *EDGE_TEXT, *_ARRAYS)


def file_ending(path: Path) -> str:
    """A file's ending in lower case, without ``.gz``."""
    inner = Path(path.stem) if path.suffix.lower() == ".gz" else path
    return inner.suffix.lower()


def holds_only_edges(path: str | Path) -> bool:
    """Whether a path is a file of a format that holds edges and nothing about nodes."""
    path = Path(path)
    return path.is_file() and (is_table(path) or file_ending(path) in (*EDGE_TEXT, ".mtx"))


def read_graph(path: str | Path, columns: Columns | None = None, *, labels: bool = True) -> Graph:
    r"""Read a graph: a folder with ``edges.csv``, or a file in one of many formats.

    Files are ``.npz`` (ours, or SciPy's sparse matrices), tables of edges (CSV, Parquet), lists of
    edges without a header (``.edges``, ``.txt``), ``.graphml``, ``.gml``, ``.gexf``, ``.json`` with
    lists of nodes and links, ``.mtx``, and ``.pt`` with a PyG ``Data``. Text may be compressed as
    ``.gz``.

    Args:
        path: the file or folder.
        columns: the roles of columns or attributes, where their names do not tell.
        labels: whether labels and a split that ``columns`` names must exist.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "edges.csv").write_text("source,target\n1,2\n2,3\n")
        >>> read_graph(folder).node_ids
        ('1', '2', '3')
    """
    path, columns = Path(path), columns or Columns()
    ending = file_ending(path)
    if path.is_dir():
        return read_csv_folder(path, columns, labels=labels)
    if not path.exists():
        raise GraphError(f"{path}: there is no such file or folder")
    if is_special(path):
        raise GraphError(f"{path}: is a device or a pipe; name a file or a folder")
    if ending in _ARRAYS:
        if columns.said and labels:
            told = f"has no columns with names; leave --{columns.options[0]} out"
            raise GraphError(f"{path}: {told}")
        return _read_arrays(path, ending)
    if ending in (*NETWORKX, _JSON):
        for said in ("id", "source", "target"):
            if getattr(columns, said) is not None:
                raise GraphError(f"{path}: defines its nodes and edges itself; leave out --{said}")
        if ending == _JSON:
            return _read_json(path, columns, labels=labels)
        return graph_from_networkx(_read_networkx(path, ending), path, columns, labels=labels)
    if ending in EDGE_TEXT or is_table(path):
        return read_edge_list(path, columns, labels=labels)
    raise GraphError(
        f"{path}: cannot read a graph from a {path.suffix!r} file; pass a folder with edges.csv, "
        f"a table of edges, or one of {', '.join(GRAPH_FILES)}"
    )


def graph_from_networkx(found: Any, path: Path, columns: Columns, *, labels: bool = True) -> Graph:
    """Convert a NetworkX graph; ``path`` names it in errors.

    Attributes are read like columns of ``nodes.csv`` and ``edges.csv``. An attribute ``label`` that
    is different on every node is its name, not its class; in GML it is also the node's id.
    """
    if found.is_directed():
        logger.info(_DIRECTED, path)
    for tail, head, weight in found.edges(data="weight"):
        if isinstance(weight, float) and math.isnan(weight):  # a missing cell would weigh 1
            raise GraphError(f"{path}: edge ({tail!r}, {head!r}): the weight is not a number")
    usual = {kind: found.graph.get(f"{kind}_default", {}) for kind in ("node", "edge")}
    nodes = _table(path, (usual["node"] | data for _, data in found.nodes(data=True)), "node")
    edges = _table(path, (usual["edge"] | data for *_, data in found.edges(data=True)), "edge")
    nodes.columns["id"] = [str(node) for node in found]
    edges.columns["source"] = [str(end) for end, *_ in found.edges(data=True)]
    edges.columns["target"] = [str(end) for _, end, *_ in found.edges(data=True)]
    return _joined(edges, nodes, columns, labels)


def _read_json(path: Path, columns: Columns, *, labels: bool) -> Graph:
    """Read ``{"nodes": [{"id": …}, …], "links": [{"source": …, "target": …}, …]}``.

    The links may be called edges. Nodes without ids are numbered from 0.
    """
    try:
        with opened(path) as file:
            found = parse_json(file.read().decode("utf-8-sig"))
    except (ValueError, *DAMAGE) as error:
        raise unreadable(path, "JSON", error) from None
    parts: dict[str, Any] = found if isinstance(found, dict) else {}
    links = "edges" if "edges" in parts else "links"
    for rows in (parts.get("nodes"), parts.get(links)):
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
            raise GraphError(f"{path}: has no lists of objects called 'nodes' and 'links'")
    nodes, edges = _table(path, parts["nodes"], "node"), _table(path, parts[links], "edge")
    nodes.columns.setdefault("id", [str(place) for place in range(len(nodes.lines))])
    if parts.get("directed"):
        logger.info(_DIRECTED, path)
    return _joined(edges, nodes, columns, labels)


def _joined(edges: Table, nodes: Table, columns: Columns, labels: bool) -> Graph:
    """The graph of nodes and edges in columns called ``id``, ``source`` and ``target``."""
    if "weight" in edges.columns:  # 1 for edges without a weight
        edges.columns["weight"] = [cell or "1" for cell in edges.columns["weight"]]
    told = Columns(id="id", source="source", target="target").over(columns)
    return graph_of_tables(edges, nodes, told, bare_name(nodes.path), labels=labels)


def _table(path: Path, rows: Iterable[dict[str, Any]], row: str) -> Table:
    """Return attributes as columns of text; log those that hold several values, and drop them."""
    attributes = list(rows)
    names = dict.fromkeys(name for data in attributes for name in data)
    several = {
        name
        for data in attributes
        for name, value in data.items()
        if isinstance(value, list | dict | tuple)
    }
    if several:
        told = "%s: attributes of a %s left out, as they hold several values: %s"
        logger.info(told, path, row, quoted(sorted(map(str, several))))
    plain = [name for name in names if name not in several]
    cells = {str(name): [cell_text(data.get(name)) for data in attributes] for name in plain}
    return Table(path, cells, range(1, len(attributes) + 1), row=row)


def _read_networkx(path: Path, ending: str) -> Any:
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
        raise unreadable(path, NETWORKX[ending], error) from None


def _gml(file: io.BytesIO) -> Any:
    """Read GML by its nodes' labels if each has its own, else by their numbers.

    Repeated edges are allowed.
    """
    import networkx as nx

    lines = file.read().decode("utf-8", errors="replace").splitlines()
    try:
        graph = nx.parse_gml(lines, label="id")
    except nx.NetworkXError as error:
        if not str(error).startswith("edge ") or "duplicated" not in str(error):
            raise
        text = "\n".join(lines).replace("graph", "\0", 1)
        opening = text.index("[", text.index("\0"))
        several = f"{text[: opening + 1]} multigraph 1 {text[opening + 1 :]}".replace("\0", "graph")
        graph = nx.parse_gml(several, label="id")
    labels = dict(graph.nodes(data="label"))
    if None in labels.values() or len(set(map(str, labels.values()))) < len(labels):
        return graph
    for _, attributes in graph.nodes(data=True):
        del attributes["label"]
    return nx.relabel_nodes(graph, labels)


def _read_arrays(path: Path, ending: str) -> Graph:
    if ending == ".mtx":
        try:
            matrix = csr_array(mmread(path, spmatrix=False))
        except (*DAMAGE, OverflowError) as error:
            raise unreadable(path, "MatrixMarket", error) from None
        with naming(path):  # nodes are called 1, 2, …, as rows are there
            ids = tuple(str(node) for node in range(1, matrix.shape[0] + 1))
            return Graph(_weights(matrix), node_ids=ids, name=bare_name(path))
    if ending == ".pt":
        from specformer.graphs.formats.graph_set_pyg import read_pyg_graph

        return read_pyg_graph(path)
    held: set[str] = set()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            held = {*archive.namelist()}
    if not held >= {"format.npy", "shape.npy", "data.npy"}:  # as scipy.sparse.save_npz writes them
        return read_npz(path)
    try:
        matrix = csr_array(load_npz(path))  # without pickle
    except DAMAGE as error:
        raise unreadable(path, "npz", error) from None
    with naming(path):
        return Graph(_weights(matrix), name=bare_name(path))


def _weights(matrix: csr_array) -> csr_array[np.float64]:
    rows, columns = matrix.shape
    if rows != columns:
        raise GraphError(f"a matrix of {rows} × {columns} is not square, as adjacency matrices are")
    if np.iscomplexobj(matrix.data):
        raise GraphError("the weights are complex numbers; take their absolute values")
    return symmetrised(matrix)
