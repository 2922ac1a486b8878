"""Features of nodes that are computed from the edges, for graphs without features of their own."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from specformer.graphs import Graph
from specformer.graphs.graph_set import runs_within

logger = logging.getLogger(__name__)

#: The names of the structural features, in order.
STRUCTURAL = (
    "log degree",
    "clustering coefficient",
    "return in 2 steps",
    "return in 3 steps",
    "return in 4 steps",
)
#: Most entries of A² in memory at a time.
_HELD = 2**24


def with_structural_features(graph: Graph) -> Graph:
    r"""The graph with five structural features of each node in place of its own features.

    They are log(1 + degree), the share of pairs of its neighbours that are linked, and the
    probability that a random walk from it is back after 2, 3 and 4 steps, the diagonal of
    :math:`(D^{-1} A)^k`.

    Example:
        >>> triangle = Graph(sp.csr_array(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])))
        >>> with_structural_features(triangle).x[0].round(2).tolist()
        [1.1, 1.0, 0.5, 0.25, 0.38]
    """
    degree: np.ndarray = np.asarray(graph.adjacency.sum(axis=1)).ravel()
    x = np.column_stack([np.log1p(degree), _clustering(graph.adjacency), _returns(graph.adjacency)])
    return replace(graph, x=x, feature_names=STRUCTURAL, feature_words=None)


def with_features(graph: Graph, source: str) -> Graph:
    """The graph, with structural features if it has none or each has a single value.

    The change is logged; ``source`` is the graph's name there.
    """
    if graph.x is None:
        why = "has no node features"
    elif isinstance(graph.x, np.ndarray) and all(
        (column == column[0]).all() or np.isnan(column).all() for column in graph.x.T
    ):
        why = "every column of features has a single value"
    else:
        return graph
    logger.info("%s: %s; used are %s", source, why, ", ".join(STRUCTURAL))
    return with_structural_features(graph)


def _clustering(adjacency: sp.csr_array) -> np.ndarray:
    """The share of pairs of each node's neighbours that are linked, 0 if there is no pair."""
    edges = adjacency.astype(bool).astype(np.float64)
    edges = sp.csr_array(edges - sp.diags_array(edges.diagonal()))
    edges.eliminate_zeros()
    degree = np.diff(edges.indptr)
    closed = np.zeros(len(degree))
    for rows in _blocks(edges):
        closed[rows] = (edges[rows] @ edges).multiply(edges[rows]).sum(axis=1)
    return closed / np.maximum(degree * (degree - 1.0), 1.0)


def _returns(adjacency: sp.csr_array) -> np.ndarray:
    """Probabilities that a random walk is back after 2, 3 and 4 steps, ``[n, 3]``."""
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    step = sp.csr_array(sp.diags_array(inverse) @ adjacency)
    back = sp.csr_array(adjacency @ sp.diags_array(inverse))  # the transposed matrix
    found = np.zeros((len(degree), 3))
    found[:, 0] = step.multiply(back).sum(axis=1)
    for rows in _blocks(adjacency):
        two = sp.csr_array(step[rows] @ step)
        found[rows, 1] = two.multiply(back[rows]).sum(axis=1)
        # Random walks are reversible: d_i (P²)_ij = d_j (P²)_ji.
        found[rows, 2] = degree[rows] * (two.multiply(two) @ inverse)
    return found


def _blocks(matrix: sp.csr_array) -> list[slice]:
    """Blocks of rows whose products with the matrix fit into memory."""
    counts = np.diff(matrix.indptr).astype(np.float64)
    products = abs(matrix).astype(bool) @ counts
    return [slice(*run) for run in runs_within(products, _HELD)]
