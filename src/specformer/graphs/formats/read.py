"""Reading a graph from disk, whatever form it is in."""

from __future__ import annotations

from pathlib import Path

from specformer.errors import GraphError
from specformer.graphs.formats.csv_folder import read_csv_folder, read_edge_list
from specformer.graphs.formats.csv_table import is_csv
from specformer.graphs.formats.npz_file import read_npz
from specformer.graphs.graph import Graph


def read_graph(path: str | Path) -> Graph:
    r"""Read a graph from an ``.npz`` file, a folder with ``edges.csv``, or a CSV file of edges.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "edges.csv").write_text("source,target\n1,2\n2,3\n")
        >>> read_graph(folder).node_ids
        ('1', '2', '3')
    """
    path = Path(path)
    if path.is_dir():
        return read_csv_folder(path)
    if not path.exists():
        raise GraphError(f"{path}: there is no such file or folder")
    if path.suffix == ".npz":
        return read_npz(path)
    if is_csv(path):
        return read_edge_list(path)
    raise GraphError(
        f"{path}: cannot read a graph from a {path.suffix!r} file; "
        f"pass an .npz file, a folder with edges.csv or a .csv file of edges"
    )
