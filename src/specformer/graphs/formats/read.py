"""Reading a graph from disk, whatever form it is in."""

from __future__ import annotations

from pathlib import Path

from specformer.errors import GraphError
from specformer.graphs.columns import Columns
from specformer.graphs.formats.csv_folder import read_csv_folder, read_edge_list
from specformer.graphs.formats.edge_list import read_edge_text
from specformer.graphs.formats.matrix_file import is_scipy_npz, read_matrix_market, read_scipy_npz
from specformer.graphs.formats.networkx_file import NETWORKX, read_networkx_file
from specformer.graphs.formats.npz_file import read_npz
from specformer.graphs.formats.table_file import bare_name, is_table
from specformer.graphs.formats.table_graph import graph_of_tables
from specformer.graphs.graph import Graph

#: Endings of text files that hold a list of edges.
EDGE_TEXT = (".edges", ".edgelist", ".el", ".txt")
#: Endings of files that have no columns to name.
_ARRAYS = (".npz", ".pt", ".mtx")
#: Endings of all files that hold one graph, but tables.
GRAPH_FILES = (*NETWORKX, *EDGE_TEXT, *_ARRAYS)


def file_ending(path: Path) -> str:
    """A file's ending in small letters, without that of compression.

    Example:
        >>> file_ending(Path("a.GraphML.gz")), file_ending(Path("folder/a"))
        ('.graphml', '')
    """
    inner = Path(path.stem) if path.suffix.lower() == ".gz" else path
    return inner.suffix.lower()


def holds_only_edges(path: str | Path) -> bool:
    """Whether a path is a file that tells nothing of nodes but who is joined to whom."""
    path = Path(path)
    return path.is_file() and (is_table(path) or file_ending(path) in (*EDGE_TEXT, ".mtx"))


def read_graph(path: str | Path, columns: Columns | None = None, *, labels: bool = True) -> Graph:
    r"""Read a graph: a folder with ``edges.csv``, or a file in one of many formats.

    Files are ``.npz`` (ours, or SciPy's sparse matrices), tables of edges (CSV, Parquet), lists of
    edges without a header (``.edges``, ``.txt``), ``.graphml``, ``.gml``, ``.gexf``, ``.mtx``, and
    ``.pt`` with a PyG ``Data``. Text may be compressed as ``.gz``.

    Args:
        path: the file or folder.
        columns: which column or attribute is what, where their names do not tell.
        labels: whether labels and a split that ``columns`` names have to be there.

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
    if ending in _ARRAYS:
        if columns.said and labels:
            told = f"has no columns with names; leave --{columns.options[0]} out"
            raise GraphError(f"{path}: {told}")
        return _read_arrays(path, ending)
    if ending in NETWORKX:
        return read_networkx_file(path, ending, columns, labels=labels)
    if ending in EDGE_TEXT:
        edges, known = read_edge_text(path, columns)
        return graph_of_tables(edges, None, known, bare_name(path), labels=labels)
    if is_table(path):
        return read_edge_list(path, columns, labels=labels)
    raise GraphError(
        f"{path}: cannot read a graph from a {path.suffix!r} file; pass a folder with edges.csv, "
        f"a table of edges, or one of {', '.join(GRAPH_FILES)}"
    )


def _read_arrays(path: Path, ending: str) -> Graph:
    if ending == ".mtx":
        return read_matrix_market(path)
    if ending == ".pt":
        from specformer.graphs.formats.pyg_file import read_pyg_graph

        return read_pyg_graph(path)
    return read_scipy_npz(path) if is_scipy_npz(path) else read_npz(path)
