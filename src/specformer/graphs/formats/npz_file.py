"""One graph in one ``.npz`` file, read without pickle.

Keys: ``edge_index`` [2, E] and ``num_nodes``; and, each if there is such a thing, ``edge_weight``
[E], features dense as ``x`` [n, features] (NaN is a missing value) or in CSR form as ``x_indptr``,
``x_indices``, ``x_shape`` and ``x_values`` (absent: all ones), ``y`` [n] (-1 is no label),
``train_mask``, ``val_mask`` and ``test_mask`` [n] or [n, splits], ``node_ids``, ``class_names``,
``feature_names``, and ``feature_words`` [words, 2] of columns that hold words: the column's name
and a word, in the order of their numbers. ``directed`` says whether edges were directed in their
source; they are symmetrised either way, by the rule of :mod:`specformer.graphs.edges`. Other keys
are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, triu

from specformer.errors import GraphError
from specformer.graphs.checks import as_array, refuse
from specformer.graphs.edges import adjacency_from_edges
from specformer.graphs.formats.npz_archive import naming, read_arrays, texts, write_arrays
from specformer.graphs.graph import Graph

_REQUIRED = ("edge_index", "num_nodes")
_CSR = ("x_indptr", "x_indices", "x_shape")
_AS_STORED = ("y", "train_mask", "val_mask", "test_mask")
_NAMES = ("node_ids", "class_names", "feature_names")
_KNOWN = {*_REQUIRED, *_CSR, *_AS_STORED, *_NAMES, "edge_weight", "x", "x_values", "feature_words"}


def read_npz(path: str | Path) -> Graph:
    """Read the graph that an ``.npz`` file holds; its name is the file's.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pair.npz"
        >>> np.savez(path, edge_index=[[0], [1]], num_nodes=2, y=[0, 1])
        >>> read_npz(path)
        Graph('pair', nodes=2, edges=1, classes=2)
    """
    path = Path(path)
    with naming(path):
        arrays = read_arrays(path, "one graph", _REQUIRED, _KNOWN)
        num_nodes = _scalar(arrays["num_nodes"], "num_nodes")
        edge_index, edge_weight = arrays["edge_index"], arrays.get("edge_weight")
        fields: dict[str, Any] = {key: arrays.get(key) for key in _AS_STORED}
        fields |= {key: texts(arrays[key], key) for key in _NAMES if key in arrays}
        if "feature_words" in arrays:
            fields["feature_words"] = _words(arrays["feature_words"])
        adjacency = adjacency_from_edges(edge_index, num_nodes, edge_weight)
        return Graph(adjacency, _features(arrays), **fields, name=path.stem)


def write_npz(path: str | Path, graph: Graph) -> None:
    """Write a graph to an ``.npz`` file, whole or not at all; each edge is stored once.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "loop.npz"
        >>> write_npz(path, Graph(csr_array(np.array([[2.0]]))))
        >>> read_npz(path)
        Graph('loop', nodes=1, edges=0, self_loops=1, weighted=True)
    """
    edges = triu(graph.adjacency, format="coo")
    arrays: dict[str, Any] = {
        "edge_index": np.stack(edges.coords),
        "num_nodes": graph.num_nodes,
        "directed": False,
    }
    if graph.is_weighted:
        arrays["edge_weight"] = edges.data
    if issparse(graph.x):
        arrays |= {"x_indptr": graph.x.indptr, "x_indices": graph.x.indices}
        arrays["x_shape"] = graph.x.shape
        if np.any(graph.x.data != 1):
            arrays["x_values"] = graph.x.data
    elif graph.x is not None:
        arrays["x"] = graph.x
    for key in (*_AS_STORED, *_NAMES):
        value = getattr(graph, key)
        if value is not None:
            arrays[key] = np.array(value, dtype=str if key in _NAMES else None)
    if graph.feature_words is not None:
        arrays["feature_words"] = np.array(
            [(name, word) for name, words in graph.feature_words.items() for word in words], str
        )
    write_arrays(path, arrays)


def _words(array: NDArray[Any]) -> dict[str, tuple[str, ...]]:
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind != "U":
        raise GraphError("feature_words must hold rows of two texts, a column's name and a word")
    words: dict[str, tuple[str, ...]] = {}
    for name, word in array.tolist():
        words[name] = (*words.get(name, ()), word)
    return words


def _scalar(array: NDArray[Any], name: str) -> int:
    if array.size != 1:
        raise GraphError(f"{name} must be one number, not an array of shape {list(array.shape)}")
    return int(as_array(array, name, of="integers").item())


def _features(arrays: dict[str, NDArray[Any]]) -> Any:
    if "x" in arrays:
        return arrays["x"]
    if not arrays.keys() & _CSR:
        return None
    for key in _CSR:
        if key not in arrays:
            raise GraphError(f"has sparse features but no {key!r}")
    indptr, indices, shape = (as_array(arrays[key], key, of="integers") for key in _CSR)
    if shape.shape != (2,):
        raise GraphError(f"x_shape must hold two numbers, not {shape.tolist()}")
    outside = (indices < 0) | (indices >= shape[1])
    refuse(outside, indices, "x_indices", f"outside 0..{shape[1] - 1}")
    values = arrays.get("x_values", np.ones(indices.shape, dtype=np.float32))
    try:
        return csr_array((values, indices, indptr), shape=tuple(shape.tolist()))
    except (TypeError, ValueError) as error:
        raise GraphError(f"x_indptr, x_indices, x_shape are not a CSR array: {error}") from None
