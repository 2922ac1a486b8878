r"""Features of a graph that has none: what a node's surroundings look like.

They depend on the graph alone, on no numbering, sign or basis, so that equal surroundings have
equal features in any graph.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from specformer.graphs import Graph

#: Their names, in order.
STRUCTURAL = (
    "log degree",
    "clustering coefficient",
    "return in 2 steps",
    "return in 3 steps",
    "return in 4 steps",
)
#: Entries of A² that are held at a time.
_HELD = 2**24


def with_structural_features(graph: Graph) -> Graph:
    r"""The graph with five features of each node in place of its own.

    The logarithm of 1 and its degree; the share of pairs of its neighbours that are joined; and the
    chance that a random walk from it is back after 2, 3 and 4 steps, the diagonal of
    :math:`(D^{-1} A)^k`.

    Example:
        >>> triangle = Graph(sp.csr_array(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])))
        >>> with_structural_features(triangle).x[0].round(2).tolist()
        [1.1, 1.0, 0.5, 0.25, 0.38]
    """
    degree: np.ndarray = np.asarray(graph.adjacency.sum(axis=1)).ravel()
    x = np.column_stack([np.log1p(degree), _clustering(graph.adjacency), _returns(graph.adjacency)])
    return replace(graph, x=x, feature_names=STRUCTURAL, feature_words=None)


def _clustering(adjacency: sp.csr_array) -> np.ndarray:
    """Share of the pairs of a node's neighbours that are joined, 0 where there is no pair."""
    edges = adjacency.astype(bool).astype(np.float64)
    edges = sp.csr_array(edges - sp.diags_array(edges.diagonal()))
    edges.eliminate_zeros()
    degree = np.diff(edges.indptr)
    closed = np.zeros(len(degree))
    for rows in _blocks(edges):
        closed[rows] = (edges[rows] @ edges).multiply(edges[rows]).sum(axis=1)
    return closed / np.maximum(degree * (degree - 1.0), 1.0)


def _returns(adjacency: sp.csr_array) -> np.ndarray:
    """Chances that a walk is back after 2, 3 and 4 steps, ``[n, 3]``."""
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    step = sp.csr_array(sp.diags_array(inverse) @ adjacency)
    back = sp.csr_array(adjacency @ sp.diags_array(inverse))  # the transposed matrix
    found = np.zeros((len(degree), 3))
    found[:, 0] = step.multiply(back).sum(axis=1)
    for rows in _blocks(adjacency):
        two = sp.csr_array(step[rows] @ step)
        found[rows, 1] = two.multiply(back[rows]).sum(axis=1)
        # A walk is as likely forth as back by the degrees: d_i (P²)_ij = d_j (P²)_ji.
        found[rows, 2] = degree[rows] * (two.multiply(two) @ inverse)
    return found


def _blocks(matrix: sp.csr_array) -> list[slice]:
    """Rows in blocks whose products with the matrix are small enough to hold."""
    counts = np.diff(matrix.indptr).astype(np.float64)
    products = np.cumsum(abs(matrix).astype(bool) @ counts)
    blocks, start = [], 0
    while start < len(counts):
        before = products[start - 1] if start else 0.0
        end = max(start + 1, int(np.searchsorted(products, before + _HELD, side="right")))
        blocks.append(slice(start, end))
        start = end
    return blocks
