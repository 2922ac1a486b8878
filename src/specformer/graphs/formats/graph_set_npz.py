"""Many graphs in one ``.npz`` file, read without pickle.

Keys, as in OGB's binary layout: ``num_nodes_list`` and ``num_edges_list`` [G], ``edge_index``
[2, ΣE] with numbers within each graph; and, each if there is such a thing, ``node_feat`` [ΣN, ·],
``edge_feat`` [ΣE, ·], numbers of the nodes as ``x`` [ΣN, ·], targets as ``y`` [G, tasks] (NaN is
missing), ``train_idx``, ``valid_idx``, ``test_idx``, ``ids``, ``smiles``, ``task_names`` and
``class_names``. Binary targets may instead be packed, eight a byte, as ``y_known`` and
``y_positive`` [G, ⌈tasks/8⌉] with ``y_shape``. Bonds may be listed once or in both directions;
either way a :class:`GraphSet` holds them once. Other keys are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs.checks import as_array
from specformer.graphs.formats.npz_archive import naming, read_arrays, texts, write_arrays
from specformer.graphs.graph_set import SPLITS, GraphSet

_REQUIRED = ("num_nodes_list", "num_edges_list", "edge_index")
_AS_STORED = ("node_feat", "edge_feat", "x", "y", *SPLITS)
_TEXTS = ("ids", "smiles", "task_names", "class_names")
_PACKED = ("y_known", "y_positive")
_KNOWN = {*_REQUIRED, *_AS_STORED, *_TEXTS, *_PACKED, "y_shape"}


def read_graph_set(path: str | Path) -> GraphSet:
    """Read the graphs that an ``.npz`` file holds; the set's name is the file's.

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
        arrays = read_arrays(path, "many graphs", _REQUIRED, _KNOWN)
        fields: dict[str, Any] = {key: arrays[key] for key in _AS_STORED if key in arrays}
        fields |= {key: texts(arrays[key], key) for key in _TEXTS if key in arrays}
        if "y" not in fields and arrays.keys() & set(_PACKED):
            fields["y"] = _unpacked(arrays)
        counts = (arrays["num_nodes_list"], arrays["num_edges_list"])
        return GraphSet(*counts, arrays["edge_index"], **fields, name=path.stem)


def write_graph_set(path: str | Path, graphs: GraphSet) -> None:
    """Write graphs to an ``.npz`` file, whole or not at all; targets of 0 and 1 are packed.

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
        "edge_index": graphs.edge_index,
        "bonds_once": True,
        "node_feat": graphs.node_feat,
        "edge_feat": graphs.edge_feat,
    }
    arrays |= {
        key: getattr(graphs, key) for key in ("x", *SPLITS) if getattr(graphs, key) is not None
    }
    for key in _TEXTS:
        if getattr(graphs, key) is not None:
            arrays[key] = np.array(getattr(graphs, key), dtype=str)
    if graphs.y is not None:
        arrays |= _packed(graphs.y)
    write_arrays(path, arrays)


def _packed(y: NDArray[np.float32]) -> dict[str, Any]:
    """Return ``y`` as it is stored: in bits if every known target is 0 or 1."""
    known = ~np.isnan(y)
    positive = y == 1
    if not ((y == 0) | positive | ~known).all():
        return {"y": y}
    bits = {"y_known": np.packbits(known, axis=1), "y_positive": np.packbits(positive, axis=1)}
    return {**bits, "y_shape": y.shape}


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
