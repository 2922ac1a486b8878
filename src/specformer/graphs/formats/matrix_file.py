"""Adjacency matrices on disk: MatrixMarket, and what ``scipy.sparse.save_npz`` writes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from scipy.io import mmread
from scipy.sparse import csr_array, load_npz

from specformer.errors import GraphError
from specformer.graphs.edges import symmetrised
from specformer.graphs.formats.npz_archive import DAMAGE, naming
from specformer.graphs.formats.table_file import bare_name
from specformer.graphs.graph import Graph


def read_matrix_market(path: Path) -> Graph:
    r"""Read a square matrix of weights; nodes are called 1, 2, …, as rows are there.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pair.mtx"
        >>> _ = path.write_text("%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n")
        >>> read_matrix_market(path)
        Graph('pair', nodes=2, edges=1)
    """
    try:
        matrix = mmread(path, spmatrix=False)
    except (*DAMAGE, OverflowError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise GraphError(f"{path}: cannot be read as MatrixMarket: {reason}") from None
    with naming(path):
        graph = _graph(csr_array(matrix), path)
    ids = tuple(str(node) for node in range(1, graph.num_nodes + 1))
    return Graph(graph.adjacency, node_ids=ids, name=graph.name)


def is_scipy_npz(path: Path) -> bool:
    """Whether an npz file holds a sparse matrix as SciPy writes it."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())


def read_scipy_npz(path: Path) -> Graph:
    """Read the square matrix of weights that ``scipy.sparse.save_npz`` wrote."""
    with naming(path):
        try:
            matrix = load_npz(path)  # without pickle
        except DAMAGE as error:
            raise GraphError(f"the file is damaged: {str(error).partition(chr(10))[0]}") from None
        return _graph(csr_array(matrix), path)


def _graph(matrix: csr_array, path: Path) -> Graph:
    rows, columns = matrix.shape
    if rows != columns:
        raise GraphError(f"a matrix of {rows} × {columns} is not square, as adjacency matrices are")
    if np.iscomplexobj(matrix.data):
        raise GraphError("the weights are complex numbers; take their absolute values")
    return Graph(symmetrised(matrix), name=bare_name(path))
