"""From any object or file that holds a graph to a :class:`Graph` or to its matrices."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse

from specformer.errors import ConfigError, GraphError
from specformer.graphs.checks import as_scipy, check_weights
from specformer.graphs.formats.read import read_graph
from specformer.graphs.graph import MASKS, Graph, directed_edges, symmetrised
from specformer.graphs.laplacian import Isolated, laplacian_of

logger = logging.getLogger(__name__)


def as_graph(
    source: Any, num_nodes: int | None = None, edge_weight: Any = None, name: str | None = None
) -> Graph:
    """Return the graph that ``source`` holds, symmetrised and checked.

    Unweighted edges become 0/1 in both directions, however often they are repeated. Weighted edges
    that are repeated in the same direction are summed to A, and then the larger of the two
    directions counts: max(A, Aᵀ). Self-loops are kept as given.

    Args:
        source: one of

            - a :class:`Graph`, returned as it is;
            - a PyG ``Data``: ``edge_index``, ``edge_weight``, ``x``, ``y`` and the masks are
              used, ``edge_attr`` is not; without ``edge_index``, its ``adj_t``;
            - an ``edge_index`` [2, E]: tensor, array or nested list of integers;
            - a NetworkX graph: nodes in its own order, their names as ``node_ids``, the edge
              attribute ``weight`` (1 where only some edges have it);
            - a SciPy sparse matrix or a sparse tensor [n, n] whose values are the weights (True
              counts as 1);
            - the path of a file or folder that :func:`read_graph` reads.
        num_nodes: n, for an ``edge_index`` whose last nodes have no edge.
        edge_weight: weights [E] of an ``edge_index``.
        name: the graph's name; by default that of the source.

    Example:
        >>> as_graph([[0, 1, 1, 2], [1, 0, 2, 2]], num_nodes=4, name="tiny")
        Graph('tiny', nodes=4, edges=2, self_loops=1)
    """
    if isinstance(source, str | Path):
        source = read_graph(source)
    if num_nodes is None and is_pyg(source):
        num_nodes = _rows_of_labels(source)
    matrix = _directed(source, num_nodes, edge_weight)
    known: dict[str, Any] = {}
    if is_pyg(source):
        known = {field: getattr(source, field, None) for field in ("x", "y", *MASKS)}
        weighted = edge_weight is not None or "edge_weight" in source
        if "edge_attr" in source and not weighted:
            logger.info("%s: edge_attr is not read; weights are edge_weight", name or Graph.name)
    elif is_networkx(source):
        known = {"node_ids": tuple(map(str, source)), "name": source.name or Graph.name}
    graph = source if isinstance(source, Graph) else Graph(symmetrised(matrix), **known)
    return graph if name is None else replace(graph, name=name)


def as_adjacency(
    source: Any, num_nodes: int | None = None, edge_weight: Any = None
) -> csr_array[np.float64]:
    """Return the adjacency matrix [n, n] of ``source``, anything :func:`as_graph` takes.

    Only the edges of a PyG ``Data`` are used. So its ``y`` may belong to the whole graph, as a
    molecule's does, and its features need not be valid for training.
    """
    return symmetrised(_directed(source, num_nodes, edge_weight))


def signed_adjacency(
    source: Any, num_nodes: int | None = None, edge_weight: Any = None
) -> csr_array[np.float64]:
    """Return the same as :func:`as_adjacency`, but weights may be negative.

    Positive and negative weights are symmetrised separately; a pair of nodes that has both is
    refused.
    """
    edges = _directed(source, num_nodes, edge_weight, least=-math.inf).tocoo()
    if edges.dtype.kind not in "fi" or not (edges.data < 0).any():
        return symmetrised(edges)
    edges = edges.astype(np.float64)  # -x is not right of an integer type's least number
    check_weights(abs(edges))  # also their sum, which is more than that of either sign
    positive, negative = (
        symmetrised(coo_array((np.maximum(part, 0), edges.coords), shape=edges.shape))
        for part in (edges.data, -edges.data)
    )
    both = positive.multiply(negative).tocoo()
    if both.nnz:
        one, other = (int(axis[0]) for axis in both.coords)
        raise GraphError(
            f"nodes {one} and {other} are joined by a positive and by a negative weight; give one "
            "of them"
        )
    return csr_array(positive - negative)


def directed_adjacency(
    source: Any, num_nodes: int | None = None, edge_weight: Any = None
) -> csr_array[np.float64]:
    """Return the same as :func:`as_adjacency` with the weight of the edge from i to j at [i, j]."""
    return check_weights(_directed(source, num_nodes, edge_weight))


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

    Absolute values are those of the undirected graph, so a charge q of 0 gives its Laplacian. An
    edge with an equal one in the other direction has no phase. ``isolated`` is the eigenvalue, 1 or
    0, that a node without edges adds.

    Example:
        >>> magnetic_laplacian([[0], [1]], 0.25).toarray().round(3) + 0.0
        array([[1.+0.j, 0.-1.j],
               [0.+1.j, 1.+0.j]])
    """
    if not (isinstance(charge, Real) and np.isfinite(float(charge))):
        raise ConfigError(f"charge={charge!r} must be a finite number, such as 0.25.")
    directed = directed_adjacency(source, num_nodes, edge_weight)
    laplacian = laplacian_of(symmetrised(directed), isolated).tocoo()
    if not laplacian.nnz:  # SciPy returns another type at no positions
        return csr_array(laplacian, dtype=np.complex128)
    row, column = laplacian.coords
    forth, back = (
        np.asarray(matrix[row, column]).ravel() for matrix in (directed, directed.T.tocsr())
    )
    net = (forth - back) / np.where(forth + back > 0, forth + back, 1.0)
    data = laplacian.data * np.exp(2j * np.pi * charge * net)
    return csr_array((data, (row, column)), shape=laplacian.shape)


def is_pyg(source: Any) -> bool:
    """Whether this is a PyG ``Data`` or ``Batch``; does not import PyG.

    Looks at the class: an object of a data set in memory has the attribute too, for all its graphs.
    """
    return hasattr(type(source), "edge_index")


def is_networkx(source: Any) -> bool:
    """Whether this is a graph of NetworkX; does not import NetworkX."""
    return all(hasattr(source, name) for name in ("nodes", "edges", "is_multigraph"))


def _refuse_others(source: Any) -> None:
    """Refuse many graphs, and a pandas DataFrame: two of its rows would pass for an edge_index."""
    listed = isinstance(source, list | tuple) and len(source) > 0 and is_pyg(source[0])
    if listed or (hasattr(source, "get") and hasattr(source, "indices")):
        raise GraphError(
            f"{type(source).__name__} holds several graphs; pass one of them, such as the first, "
            f"[0], or pass all of them to specformer.datasets.pack"
        )
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        raise GraphError(
            "a DataFrame does not say which of its columns are the ends of an edge; pass "
            'frame[["source", "target"]].to_numpy().T with the names of yours'
        )


def _rows_of_labels(data: Any) -> int | None:
    """The number of nodes of a ``Data``, if only its labels tell it; else None."""
    y, ends = getattr(data, "y", None), data.edge_index
    if y is None or ends is None or data.x is not None or "num_nodes" in data:
        return None
    count = int(y.shape[0]) if getattr(y, "ndim", 0) else 0
    last = int(ends.max()) if ends.numel() else -1
    return count if count > last else None


def _directed(source: Any, num_nodes: int | None, edge_weight: Any, least: float = 0.0) -> Any:
    """Return a sparse matrix with the weight of the edge from i to j, or True, at [i, j].

    Weights of lists of edges and of NetworkX graphs must not be below ``least``.
    """
    _refuse_others(source)
    source, kind = as_scipy(source), type(source).__name__
    if is_pyg(source):
        if source.edge_index is None and getattr(source, "adj_t", None) is None:
            raise GraphError(f"{kind} has no edge_index")
        if source.edge_index is None:
            held: Any = as_scipy(source.adj_t)  # PyG keeps the edge from i to j at [j, i]
            is_matrix = bool(issparse(held))  # issparse alone would narrow the type
            return _directed(held.T if is_matrix else held, num_nodes, edge_weight, least)
        weight = getattr(source, "edge_weight", None) if edge_weight is None else edge_weight
        count = source.num_nodes if num_nodes is None else num_nodes
        return directed_edges(source.edge_index, count, weight, least)
    if isinstance(source, list | tuple) or (hasattr(source, "__array__") and not issparse(source)):
        return directed_edges(source, num_nodes, edge_weight, least)
    if isinstance(source, str | Path):
        source = read_graph(source)
    if isinstance(source, Graph):
        matrix: Any = source.adjacency
    elif issparse(source):
        matrix = source
    elif is_networkx(source):
        matrix = directed_edges(*_networkx_edges(source, least), least)
    else:
        hetero = "its .to_homogeneous(), " if hasattr(source, "to_homogeneous") else ""
        raise GraphError(
            f"cannot read a graph from {kind}; pass {hetero}an edge_index, a PyG Data, a "
            "NetworkX graph, a sparse matrix of SciPy or torch, or a path"
        )
    if edge_weight is not None:
        raise GraphError(f"edge_weight applies to an edge_index only; {kind} has its own weights")
    if num_nodes not in (None, matrix.shape[0]):
        raise GraphError(f"num_nodes is {num_nodes}, but the graph has {matrix.shape[0]} nodes")
    return matrix


def _networkx_edges(graph: Any, least: float) -> tuple[NDArray[np.int64], int, Any]:
    """Return the ends [2, E] of a NetworkX graph's edges, n, and the weights or None."""
    position = {node: i for i, node in enumerate(graph)}
    edges = list(graph.edges(data="weight"))
    for tail, head, weight in edges:
        if weight is None or (isinstance(weight, Real) and least <= float(weight) < math.inf):
            continue
        problem = f"weight {weight!r} is not a finite number of 0 or more"
        raise GraphError(f"edge ({tail!r}, {head!r}): {problem}")
    ends = np.array([[position[u], position[v]] for u, v, _ in edges], np.int64).reshape(-1, 2).T
    weights = [1.0 if weight is None else float(weight) for _, _, weight in edges]
    weighted = any(weight is not None for _, _, weight in edges)
    return ends, len(position), weights if weighted else None
