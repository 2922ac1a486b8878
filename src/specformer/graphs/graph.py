"""A graph: the one form in which the library holds it, and how edges become its matrix.

Unweighted edges give a pattern: 1 where an edge is listed, in either direction and however often.
Weighted edges that are repeated in the same direction are summed to A; then the larger of the two
directions counts, max(A, Aᵀ). So an edge listed once equals one listed both ways with the same
weight. Self-loops stay as given; a weight of 0 is not an edge.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from specformer.errors import GraphError
from specformer.graphs.checks import (
    as_array,
    check_adjacency,
    check_features,
    check_labels,
    check_mask,
    check_names,
    check_room,
    check_weights,
    check_words,
    refuse,
)

#: The fields of a split.
MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An undirected graph of n nodes with features, labels and splits, checked when it is made.

    Build one with :func:`~specformer.graphs.as_graph` or
    :func:`~specformer.graphs.read_graph`; both bring any input into this form.

    Attributes:
        adjacency: weights [n, n], float64, symmetric, not negative; self-loops as given, zeros
            not stored.
        x: node features [n, features], float32, dense or CSR; NaN in a dense array is a missing
            value.
        y: class of each node [n], int64; -1 is no label. Or several labels of 0 and 1, or numbers,
            per node [n, targets], float32; NaN is unknown.
        train_mask: nodes to learn from [n, splits]; given as [n] it is one split, and one split
            goes with each of the other masks' splits.
        val_mask: nodes to choose a model by [n, splits].
        test_mask: nodes to report on [n, splits].
        node_ids: the nodes' names in their source.
        class_names: the name of class 0, 1, …; or the name of each label or number.
        label_name: what the file calls the classes that ``y`` holds.
        feature_names: the name of each column of ``x``.
        name: what to call the graph in reports.
        feature_words: for columns that hold words, by name: the words that the numbers 0, 1, …
            stand for; :class:`specformer.datasets.FeaturePreparation` encodes them.
        feature_units: the unit of columns that a file gives one for, by name.
        mark: a hash of the files it came from, used as :attr:`fingerprint` if it is given.

    Example:
        >>> path = csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
        >>> Graph(path, y=np.array([0, 1, -1]), name="path")
        Graph('path', nodes=3, edges=2, classes=2)
    """

    adjacency: csr_array[np.float64]
    x: NDArray[np.float32] | csr_array[np.float32] | None = None
    y: NDArray[np.int64] | NDArray[np.float32] | None = None
    train_mask: NDArray[np.bool_] | None = None
    val_mask: NDArray[np.bool_] | None = None
    test_mask: NDArray[np.bool_] | None = None
    node_ids: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    name: str = "graph"
    feature_words: Mapping[str, tuple[str, ...]] | None = None
    mark: str | None = None
    label_name: str | None = None
    feature_units: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        put("adjacency", self._checked_adjacency())
        if self.x is not None:
            names, rows = self.feature_names, self.adjacency.shape[0]
            x = check_features(self.x, rows, missing=True, columns=names, of=self.name)
            put("x", x)
        counts = {"node_ids": self.num_nodes, "feature_names": self.num_features}
        for field, count in {**counts, "class_names": None}.items():
            if getattr(self, field) is not None:
                put(field, check_names(getattr(self, field), field, count))
        if self.feature_words is not None:
            put("feature_words", check_words(self.feature_words, self.feature_names, self.x))
        if self.y is not None:
            put("y", check_labels(self.y, self.num_nodes, self.class_names))
        for name, mask in self._checked_masks().items():
            put(name, mask)

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return int(self.adjacency.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of undirected edges without self-loops."""
        return (int(self.adjacency.nnz) - self.num_self_loops) // 2

    @property
    def num_self_loops(self) -> int:
        """Number of nodes joined to themselves."""
        return int(np.count_nonzero(self.adjacency.diagonal()))

    @property
    def num_features(self) -> int:
        """Number of columns of ``x``; 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes: that of ``class_names``, else one more than the largest label.

        0 if nodes have several labels or numbers instead.
        """
        if self.num_targets:
            return 0
        if self.class_names is not None:
            return len(self.class_names)
        return 0 if self.y is None else int(self.y.max()) + 1

    @property
    def num_targets(self) -> int:
        """Number of labels or numbers per node; 0 if nodes have classes."""
        return 0 if self.y is None or self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def is_labelled(self) -> NDArray[np.bool_]:
        """Which nodes [n] have a class, or at least one known target."""
        if self.y is None:
            return np.zeros(self.num_nodes, dtype=np.bool_)
        if self.y.ndim == 1:
            return self.y >= 0
        return ~np.asarray(np.isnan(self.y).all(axis=1))

    @property
    def num_splits(self) -> int:
        """Number of columns of the masks; 0 without masks."""
        masks = (getattr(self, name) for name in MASKS)
        return max((mask.shape[1] for mask in masks if mask is not None), default=0)

    @property
    def num_components(self) -> int:
        """Number of connected components; an isolated node is one."""
        count, _ = connected_components(self.adjacency, directed=False)
        return int(count)

    @property
    def is_weighted(self) -> bool:
        """Whether some edge has a weight other than 1."""
        return bool(np.any(self.adjacency.data != 1.0))

    def of_all(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows of all nodes, given those of the nodes that this process holds: here all."""
        return rows

    @property
    def fingerprint(self) -> str:
        """A short hash of edges, features and labels."""
        if self.mark is not None:
            return self.mark
        words = None if self.feature_words is None else np.array(str(self.feature_words))
        return fingerprint(adjacency=self.adjacency, x=self.x, y=self.y, words=words)

    def __repr__(self) -> str:
        always = {"nodes": self.num_nodes, "edges": self.num_edges}
        known = {
            "self_loops": self.num_self_loops,
            "weighted": self.is_weighted,
            "features": self.num_features,
            "classes": self.num_classes,
            "targets": self.num_targets,
            "splits": self.num_splits,
        }
        shown = always | {key: value for key, value in known.items() if value}
        return f"Graph({self.name!r}, {', '.join(f'{k}={v}' for k, v in shown.items())})"

    def _checked_adjacency(self) -> csr_array[np.float64]:
        return check_adjacency(self.adjacency)

    def _checked_masks(self) -> dict[str, NDArray[np.bool_]]:
        masks = {
            name: check_mask(getattr(self, name), name, self.num_nodes)
            for name in MASKS
            if getattr(self, name) is not None
        }
        splits = max((mask.shape[1] for mask in masks.values()), default=0)
        for name, mask in masks.items():
            if mask.shape[1] == 1:
                masks[name] = np.repeat(mask, splits, axis=1)
            elif mask.shape[1] != splits:
                raise GraphError(
                    f"{name} has {mask.shape[1]} splits where another mask has {splits}"
                )
        return masks


def fingerprint(**arrays: np.ndarray | csr_array[Any] | None) -> str:
    """Return a hash of arrays, without those that are None; it changes with any entry."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        if array is None:
            continue
        parts: tuple[np.ndarray, ...] = (
            (array.indptr, array.indices, array.data) if isinstance(array, csr_array) else (array,)
        )
        for part in parts:
            digest.update(f"{name} {part.dtype} {part.shape};".encode())
            digest.update(part.tobytes())
    return digest.hexdigest()[:16]


def symmetrised(matrix: Any) -> csr_array[np.float64]:
    """Return max(A, Aᵀ) of a sparse matrix A, entry by entry; True counts as 1."""
    weights = check_weights(matrix)
    return weights.maximum(weights.T.tocsr())


def directed_edges(
    edge_index: Any, num_nodes: int | None, edge_weight: Any, least: float = 0.0
) -> coo_array[Any]:
    """Return the matrix with each edge's weight, at least ``least``, or True, at [i, j].

    Without ``num_nodes``, there is one more node than the largest index.
    """
    # Checked before the type, whose message would not help with a matrix of weights.
    shape = list(getattr(edge_index, "shape", []))
    if len(shape) == 2 and shape[0] == shape[1] != 2:
        raise GraphError(
            f"edge_index must have shape [2, edges], not {shape}; a dense adjacency matrix is "
            f"passed as scipy.sparse.csr_array(matrix)"
        )
    edges = as_array(edge_index, "edge_index", of="integers")
    if edges.ndim != 2 or edges.shape[0] != 2:
        hint = "; transpose a list of pairs" if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise GraphError(f"edge_index must have shape [2, edges], not {list(edges.shape)}{hint}")
    n, count = _count_nodes(edges, num_nodes), edges.shape[1]
    check_room(nodes=n, edges=count)
    refuse((edges < 0) | (edges >= n), edges, "edge_index", f"outside 0..{n - 1}")
    weight: NDArray[Any] = np.ones(count, dtype=np.bool_)
    if edge_weight is not None:
        weight = as_array(edge_weight, "edge_weight")
        if weight.shape != (count,):
            raise GraphError(f"edge_weight must have shape [{count}], not {list(weight.shape)}")
        weight = weight.astype(np.float64)
        rule = "but weights must be finite" + (" and not negative" if least == 0.0 else "")
        refuse(~np.isfinite(weight) | (weight < least), weight, "edge_weight", rule)
    source, target = edges.astype(np.int64)
    return coo_array((weight, (source, target)), shape=(n, n))


def _count_nodes(edges: NDArray[Any], num_nodes: int | None) -> int:
    if num_nodes is None:
        if edges.size == 0:
            raise GraphError("the graph has no nodes: without edges, num_nodes must be given")
        return max(int(edges.max()) + 1, 1)
    try:
        n = operator.index(num_nodes)
    except TypeError:
        raise GraphError(f"num_nodes must be an integer, not {num_nodes!r}") from None
    if n < 0:
        raise GraphError(f"num_nodes must be at least 1, not {n}")
    if n == 0:
        raise GraphError("the graph has no nodes")
    return n
