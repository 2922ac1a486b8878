"""Adjacency matrices of directed graphs, and the phases that tell the directions of edges."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from specformer.errors import ConfigError
from specformer.graphs.checks import check_weights
from specformer.graphs.convert import as_adjacency, is_networkx, is_pyg
from specformer.graphs.edges import symmetrised
from specformer.graphs.laplacian import Isolated, laplacian_of
from specformer.graphs.tensors import as_host, as_scipy


def magnetic_laplacian(
    source: Any,
    charge: float,
    num_nodes: int | None = None,
    edge_weight: Any = None,
    isolated: Isolated = "one",
) -> csr_array[np.complex128]:
    r"""Return the Hermitian Laplacian of a directed graph [n, n]; its eigenvalues lie in [0, 2].

    .. math::
        L = I - D^{-1/2} H D^{-1/2}, \qquad
        H_{ij} = \max(A_{ij}, A_{ji})\, e^{i \theta_{ij}}, \qquad
        \theta_{ij} = 2 \pi q\, \frac{A_{ij} - A_{ji}}{A_{ij} + A_{ji}}

    Sizes are those of the undirected graph, so a charge q of 0 gives its Laplacian. An edge with a
    twin in the other direction has no phase.

    Args:
        source: an ``edge_index``, a PyG ``Data``, a NetworkX ``DiGraph`` or a sparse matrix.
        charge: q.
        num_nodes: n, if ``source`` does not say it.
        edge_weight: weights [E] of an ``edge_index``.
        isolated: the eigenvalue, 1 or 0, that a node without edges adds.

    Example:
        >>> magnetic_laplacian([[0], [1]], 0.25).toarray().round(3) + 0.0
        array([[1.+0.j, 0.-1.j],
               [0.+1.j, 1.+0.j]])
    """
    if not (isinstance(charge, Real) and np.isfinite(float(charge))):
        raise ConfigError(f"charge={charge!r} must be a finite number, such as 0.25.")
    directed = _directed(source, num_nodes, edge_weight)
    size = symmetrised(directed)
    laplacian = laplacian_of(size, isolated).tocoo()
    row, column = laplacian.coords
    forth, back = (_entries(each, row, column) for each in (directed, directed.T.tocsr()))
    net = (forth - back) / np.where(forth + back > 0, forth + back, 1.0)
    data = laplacian.data * np.exp(2j * np.pi * charge * net)
    return csr_array((data, (row, column)), shape=laplacian.shape)


def _directed(source: Any, num_nodes: int | None, edge_weight: Any) -> csr_array[np.float64]:
    """A with the weight of the edge from i to j at [i, j]; patterns weigh 1."""
    source = as_scipy(source)
    if is_pyg(source):
        edge_weight = getattr(source, "edge_weight", None) if edge_weight is None else edge_weight
        num_nodes = source.num_nodes if num_nodes is None else num_nodes
        source = source.edge_index
    if is_networkx(source):
        place = {node: number for number, node in enumerate(source.nodes)}
        named = [(place[u], place[v]) for u, v in source.edges()]
        weights = [weight for _, _, weight in source.edges(data="weight")]
        if any(weight is not None for weight in weights):
            edge_weight = [1.0 if weight is None else weight for weight in weights]
        source, num_nodes = np.array(named, dtype=np.int64).reshape(-1, 2).T, len(place)
    if issparse(source):
        return check_weights(source)
    n = as_adjacency(source, num_nodes, edge_weight).shape[0]  # with all of its checks
    edges = np.asarray(as_host(source))
    if edge_weight is None:
        weight = np.ones(edges.shape[1], dtype=np.bool_)
    else:
        weight = np.asarray(as_host(edge_weight), dtype=np.float64)
    return check_weights(coo_array((weight, tuple(edges)), shape=(n, n)))


def _entries(matrix: Any, row: Any, column: Any) -> Any:
    return np.asarray(matrix[row, column]).ravel()
