"""One graph, or many, in one ``.npz`` file, read without pickle.

``docs/reference/graph-files.md`` lists the keys of one graph, :func:`read_graph_set` those of many.
``directed`` says whether edges were directed in their source; they are symmetrised either way.
Other keys are logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, triu

from specformer.errors import GraphError
from specformer.files.npz_archive import naming, read_arrays, texts, write_arrays
from specformer.graphs.checks import as_array, refuse
from specformer.graphs.graph import MASKS, Graph, directed_edges, symmetrised
from specformer.graphs.graph_set import SPLITS, GraphSet

_CSR = ("x_indptr", "x_indices", "x_shape")
_AS_STORED = ("y", *MASKS)
_NAMES = ("node_ids", "class_names", "feature_names")
_OTHERS = (
    "num_nodes", "num_nodes_list", "directed", "edge_weight", "x", "x_values", "feature_words",
)  # fmt: skip
_KNOWN = {"edge_index", *_CSR, *_AS_STORED, *_NAMES, *_OTHERS}


def read_npz(path: str | Path) -> Graph:
    """Read a graph from an ``.npz`` file; it gets the file's name.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pair.npz"
        >>> np.savez(path, edge_index=[[0], [1]], num_nodes=2, y=[0, 1])
        >>> read_npz(path)
        Graph('pair', nodes=2, edges=1, classes=2)
    """
    path = Path(path)
    with naming(path):
        arrays = read_arrays(path, "one graph", ("edge_index",), _KNOWN)
        num_nodes = _count(arrays)
        edges = directed_edges(arrays["edge_index"], num_nodes, arrays.get("edge_weight"))
        fields: dict[str, Any] = {key: arrays.get(key) for key in _AS_STORED}
        fields |= {key: texts(arrays[key], key) for key in _NAMES if key in arrays}
        if "feature_words" in arrays:
            fields["feature_words"] = _words(arrays["feature_words"])
        return Graph(symmetrised(edges), _features(arrays), **fields, name=path.stem)


def write_npz(path: str | Path, graph: Graph) -> None:
    """Write a graph to an ``.npz`` file, atomically; each edge is stored once.

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
    arrays |= _stored(graph, (*_AS_STORED, *_NAMES))
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


def _count(arrays: dict[str, NDArray[Any]]) -> int:
    """The number of nodes: as given, else the number of rows of features or labels."""
    if "num_nodes_list" in arrays:
        raise GraphError("holds many graphs, where a single graph is needed")
    if "num_nodes" in arrays:
        return one_number(arrays["num_nodes"], "num_nodes")
    for key in ("x", "y"):
        if key in arrays and arrays[key].ndim:
            return len(arrays[key])
    raise GraphError("has no 'num_nodes', and neither x nor y to count the nodes of")


def one_number(array: NDArray[Any], name: str) -> int:
    """The integer in an array that holds nothing else."""
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


_SET_REQUIRED = ("num_nodes_list", "num_edges_list", "edge_index")
_SET_AS_STORED = ("node_feat", "edge_feat", "x", "edge_x", "y", *SPLITS)
_TEXTS = ("ids", "smiles", "task_names", "class_names")
_PACKED = ("y_known", "y_positive")
_SET_KNOWN = {*_SET_REQUIRED, *_SET_AS_STORED, *_TEXTS, *_PACKED, "y_shape", "bonds_once"}


def read_graph_set(path: str | Path) -> GraphSet:
    """Read the graphs of an ``.npz`` file; the set gets the file's name.

    Keys, as in OGB's binary layout: ``num_nodes_list`` and ``num_edges_list`` [G], ``edge_index``
    [2, ΣE], numbered within each graph. Optional keys: ``node_feat`` [ΣN, ·], ``edge_feat``
    [ΣE, ·], numbers of the nodes as ``x`` [ΣN, ·] and of the bonds as ``edge_x`` [ΣE, ·], targets
    as ``y`` [G, tasks] (NaN is missing), ``train_idx``, ``valid_idx``, ``test_idx``, ``ids``,
    ``smiles``, ``task_names`` and ``class_names``. Binary targets may instead be packed, eight per
    byte, as ``y_known`` and ``y_positive`` [G, ⌈tasks/8⌉] with ``y_shape``. Bonds may be listed
    once or in both directions; a :class:`GraphSet` holds them once. Other keys are logged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "two.npz"
        >>> counts = {"num_nodes_list": [2, 1], "num_edges_list": [1, 0]}
        >>> np.savez(path, edge_index=[[0], [1]], y=[[0.5], [np.nan]], **counts)
        >>> read_graph_set(path)
        GraphSet('two', graphs=2, nodes=3, edges=1, tasks=1)
    """
    path = Path(path)
    with naming(path):
        arrays = read_arrays(path, "many graphs", _SET_REQUIRED, _SET_KNOWN)
        fields: dict[str, Any] = {key: arrays[key] for key in _SET_AS_STORED if key in arrays}
        fields |= {key: texts(arrays[key], key) for key in _TEXTS if key in arrays}
        if "y" not in fields and arrays.keys() & set(_PACKED):
            fields["y"] = _unpacked(arrays)
        counts = (arrays["num_nodes_list"], arrays["num_edges_list"])
        return GraphSet(*counts, arrays["edge_index"], **fields, name=path.stem)


def write_graph_set(path: str | Path, graphs: GraphSet) -> None:
    """Write graphs to an ``.npz`` file, atomically.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "one.npz"
        >>> write_graph_set(path, GraphSet([3], [2], [[0, 1], [1, 2]], y=[[1.0]]))
        >>> read_graph_set(path)
        GraphSet('one', graphs=1, nodes=3, edges=2, tasks=1)
    """
    arrays: dict[str, Any] = {
        "num_nodes_list": graphs.num_nodes,
        "num_edges_list": graphs.num_edges,
        "bonds_once": True,
    }
    write_arrays(path, arrays | _stored(graphs, ("edge_index", *_SET_AS_STORED, *_TEXTS)))


def _stored(held: Any, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the fields that are not None, as arrays; tuples hold texts."""
    found = ((key, getattr(held, key)) for key in keys)
    return {
        key: np.array(each, dtype=str if isinstance(each, tuple) else None)
        for key, each in found
        if each is not None
    }


def _unpacked(arrays: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    for key in (*_PACKED, "y_shape"):
        if key not in arrays:
            raise GraphError(f"has packed targets but no {key!r}")
    shape = as_array(arrays["y_shape"], "y_shape", of="integers").ravel()
    known, positive = (arrays[key] for key in _PACKED)
    stored = (shape[0], -(-shape[-1] // 8))
    for key, bits in zip(_PACKED, (known, positive), strict=True):
        if bits.dtype != np.uint8 or len(shape) != 2 or bits.shape != stored:
            raise GraphError(
                f"{key} is {bits.dtype} {list(bits.shape)}, which does not hold the bits of "
                f"targets of shape {shape.tolist()}"
            )
    tasks = int(shape[1])
    y = np.unpackbits(positive, axis=1, count=tasks).astype(np.float32)
    y[np.unpackbits(known, axis=1, count=tasks) == 0] = np.nan
    return y
