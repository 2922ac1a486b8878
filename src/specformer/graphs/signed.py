"""Adjacency matrices whose weights may be negative."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from specformer.errors import GraphError
from specformer.graphs.convert import as_adjacency, is_networkx, is_pyg
from specformer.graphs.edges import adjacency_from_edges, symmetrised
from specformer.graphs.tensors import as_host, as_scipy


def signed_adjacency(
    source: Any, num_nodes: int | None = None, edge_weight: Any = None
) -> csr_array[np.float64]:
    """Return what :func:`~specformer.graphs.as_adjacency` does, but with weights of either sign.

    Positive and negative weights are symmetrised by themselves; a pair of nodes that has both is
    refused.

    Example:
        >>> signed_adjacency([[0, 1], [1, 2]], edge_weight=[2.0, -1.0]).toarray()
        array([[ 0.,  2.,  0.],
               [ 2.,  0., -1.],
               [ 0., -1.,  0.]])
    """
    source = as_scipy(source)
    if is_pyg(source):
        if edge_weight is None:
            edge_weight = getattr(source, "edge_weight", None)
        if edge_weight is not None and source.edge_index is not None:
            num_nodes = source.num_nodes if num_nodes is None else num_nodes
            source = source.edge_index
    if is_networkx(source) and any((w or 0) < 0 for _, _, w in source.edges(data="weight")):
        place = {node: number for number, node in enumerate(source.nodes)}
        edges = [
            (place[u], place[v], 1.0 if w is None else w) for u, v, w in source.edges(data="weight")
        ]
        *ends, edge_weight = zip(*edges, strict=True)
        source, num_nodes = np.array(ends), len(place)
    if issparse(source) and edge_weight is None:
        matrix: Any = source.tocsr()  # type: ignore[attr-defined]
        if not _has_negative(matrix.data):
            return as_adjacency(source, num_nodes)
        return _joined(symmetrised(matrix.maximum(0)), symmetrised((-matrix).maximum(0)))
    if edge_weight is None or not _has_negative(edge_weight):
        return as_adjacency(source, num_nodes, edge_weight)
    weight = np.asarray(as_host(edge_weight), dtype=np.float64)
    parts = [
        adjacency_from_edges(source, num_nodes, np.maximum(each, 0)) for each in (weight, -weight)
    ]
    return _joined(*parts)


def _has_negative(weights: Any) -> bool:
    array: NDArray[Any] = np.asarray(as_host(weights))
    return array.dtype.kind in "fi" and bool((array < 0).any())


def _joined(
    positive: csr_array[np.float64], negative: csr_array[np.float64]
) -> csr_array[np.float64]:
    both = positive.multiply(negative).tocoo()
    if both.nnz:
        one, other = (int(axis[0]) for axis in both.coords)
        raise GraphError(
            f"nodes {one} and {other} are joined by a positive and by a negative weight; give one"
        )
    return csr_array(positive - negative)
