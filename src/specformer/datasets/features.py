r"""Node features as models take them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from specformer.graphs import Graph


def dense_features(graph: Graph, scaling: Literal["rows", "none"] = "rows") -> np.ndarray:
    """Features ``[n, features]``, each row divided by its sum where that exceeds 1, or as given.

    Example:
        >>> graph = Graph(sp.csr_array((2, 2)), x=np.array([[1.0, 3.0], [0.5, 0.0]]))
        >>> dense_features(graph).tolist()
        [[0.25, 0.75], [0.5, 0.0]]
    """
    assert graph.x is not None
    dense = graph.x.toarray() if sp.issparse(graph.x) else np.asarray(graph.x)
    if scaling == "none":
        return np.asarray(dense, dtype=np.float32)
    return np.asarray(dense / np.maximum(dense.sum(axis=1, keepdims=True), 1.0), dtype=np.float32)


def sparse_features(graph: Graph, scaling: Literal["rows", "none"] = "rows") -> sp.csr_array:
    """The same as :func:`dense_features`, of a graph with sparse features, as compressed rows."""
    assert isinstance(graph.x, sp.csr_array)
    if scaling == "none":
        return graph.x
    sums = np.maximum(np.asarray(graph.x.sum(axis=1)).ravel(), 1.0)
    return sp.csr_array(sp.diags_array(1.0 / sums) @ graph.x)
