"""From a list of edges to the adjacency matrix: one rule for all sources.

Unweighted edges give a pattern: 1 where an edge is listed, in either direction and however often.
Weighted edges that are repeated in the same direction are summed to A; then the larger of the two
directions counts, max(A, Aᵀ). So an edge listed once equals one listed both ways with the same
weight. Self-loops stay as given; a weight of 0 is not an edge.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from specformer.errors import GraphError
from specformer.graphs.checks import as_array, check_room, check_weights, refuse


def adjacency_from_edges(
    edge_index: Any, num_nodes: int | None = None, edge_weight: Any = None
) -> csr_array[np.float64]:
    """Return the symmetric adjacency matrix [n, n] of ``edge_index`` [2, E], weights [E] or 1.

    Without ``num_nodes``, n is one more than the largest index.
    """
    return symmetrised(directed_edges(edge_index, num_nodes, edge_weight))


def directed_edges(
    edge_index: Any, num_nodes: int | None, edge_weight: Any, least: float = 0.0
) -> coo_array[Any]:
    """Return the matrix with each edge's weight, at least ``least``, or True, at [i, j]."""
    _refuse_dense(edge_index)
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
        rule = "but weights must be finite and not negative"
        refuse(~np.isfinite(weight) | (weight < least), weight, "edge_weight", rule)
    source, target = edges.astype(np.int64)
    return coo_array((weight, (source, target)), shape=(n, n))


def symmetrised(matrix: Any) -> csr_array[np.float64]:
    """Return max(A, Aᵀ) of a sparse matrix A, entry by entry; True counts as 1."""
    weights = check_weights(matrix)
    return weights.maximum(weights.T.tocsr())


def _refuse_dense(edge_index: Any) -> None:
    # Checked before the type, whose message would not help with a matrix of weights.
    shape = list(getattr(edge_index, "shape", []))
    if len(shape) == 2 and shape[0] == shape[1] != 2:
        raise GraphError(
            f"edge_index must have shape [2, edges], not {shape}; a dense adjacency matrix is "
            f"passed as scipy.sparse.csr_array(matrix)"
        )


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
