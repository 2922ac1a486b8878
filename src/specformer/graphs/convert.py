"""From whatever holds a graph in memory or on disk to a :class:`Graph`."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from specformer.errors import GraphError
from specformer.graphs.edges import adjacency_from_edges, symmetrised
from specformer.graphs.formats.read import read_graph
from specformer.graphs.graph import Graph
from specformer.graphs.tensors import as_scipy


def as_graph(
    source: Any, num_nodes: int | None = None, edge_weight: Any = None, name: str | None = None
) -> Graph:
    """Return the graph that ``source`` holds, symmetrised and checked.

    Unweighted edges become 0/1 in both directions, however often they are repeated. Of weighted
    ones, repeats in the same direction are summed to A, and then the larger of the two
    directions counts: max(A, Aᵀ). Self-loops are kept as given.

    Args:
        source: one of

            - a :class:`Graph`, returned as it is;
            - a PyG ``Data``: ``edge_index``, ``edge_weight``, ``x``, ``y`` and the masks are
              taken, ``edge_attr`` is not; without ``edge_index``, its ``adj_t``;
            - an ``edge_index`` [2, E]: tensor, array or nested list of integers;
            - a NetworkX graph: nodes in its own order, their names as ``node_ids``, the edge
              attribute ``weight`` (1 where only some edges have it);
            - a SciPy sparse matrix or a sparse tensor [n, n] whose values are the weights (True
              counts as 1);
            - the path of a file or folder that :func:`read_graph` reads.
        num_nodes: n, for an ``edge_index`` whose last nodes have no edge.
        edge_weight: weights [E] of an ``edge_index``.
        name: what to call the graph; by default what the source calls it.

    Example:
        >>> as_graph([[0, 1, 1, 2], [1, 0, 2, 2]], num_nodes=4, name="tiny")
        Graph('tiny', nodes=4, edges=2, self_loops=1)
    """
    _refuse_many(source)
    _refuse_frame(source)
    source = as_scipy(source)
    if is_pyg(source):
        graph = _from_pyg(source, num_nodes, edge_weight)
    elif _is_edge_index(source):
        graph = Graph(adjacency_from_edges(source, num_nodes, edge_weight))
    else:
        graph = _from_whole(source)
        _refuse_options(source, graph, num_nodes, edge_weight)
    return graph if name is None else replace(graph, name=name)


def as_adjacency(
    source: Any, num_nodes: int | None = None, edge_weight: Any = None
) -> csr_array[np.float64]:
    """Return the adjacency matrix [n, n] of ``source``, anything :func:`as_graph` takes.

    Of a PyG ``Data`` nothing but the edges is looked at, so its ``y`` may belong to the whole
    graph, as a molecule's does, and its features need not be fit to train on.

    Example:
        >>> as_adjacency([[0], [1]]).toarray()
        array([[0., 1.],
               [1., 0.]])
    """
    if is_pyg(source):
        return Graph(_pyg_adjacency(source, num_nodes, edge_weight)).adjacency
    return as_graph(source, num_nodes, edge_weight).adjacency


def is_pyg(source: Any) -> bool:
    """Whether this is a PyG ``Data`` or ``Batch``, known without importing PyG.

    The class is asked: a data set in memory has the attribute too, joined over all its graphs.
    """
    return hasattr(type(source), "edge_index")


def _refuse_many(source: Any) -> None:
    listed = isinstance(source, list | tuple) and len(source) > 0 and is_pyg(source[0])
    if listed or (hasattr(source, "get") and hasattr(source, "indices")):
        raise GraphError(
            f"{type(source).__name__} holds a set of graphs; pass one of them, such as its first, "
            f"[0], or all of them to specformer.datasets.pack"
        )


def _refuse_frame(source: Any) -> None:
    """Refuse a pandas DataFrame: with two rows, its edges would pass for an ``edge_index``."""
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        raise GraphError(
            "a DataFrame does not say which of its columns are the ends of an edge; pass "
            'frame[["source", "target"]].to_numpy().T with the names of yours'
        )


def _is_edge_index(source: Any) -> bool:
    return isinstance(source, list | tuple) or hasattr(source, "__array__")


def is_networkx(source: Any) -> bool:
    """Whether this is a NetworkX graph, known without importing NetworkX."""
    return all(hasattr(source, name) for name in ("nodes", "edges", "is_multigraph"))


def _from_whole(source: Any) -> Graph:
    """Read a source that says for itself how many nodes it has and what its edges weigh."""
    if isinstance(source, Graph):
        return source
    if isinstance(source, str | Path):
        return read_graph(source)
    if issparse(source):
        return Graph(symmetrised(source))
    if is_networkx(source):
        return _from_networkx(source)
    raise GraphError(
        f"cannot read a graph from {type(source).__name__}; pass an edge_index, a PyG Data, a "
        f"NetworkX graph, a sparse matrix of SciPy or torch, or a path"
    )


def _refuse_options(source: Any, graph: Graph, num_nodes: int | None, edge_weight: Any) -> None:
    if edge_weight is not None:
        raise GraphError(
            f"edge_weight goes with an edge_index; {type(source).__name__} has its own weights"
        )
    if num_nodes not in (None, graph.num_nodes):
        raise GraphError(f"num_nodes is {num_nodes}, but the graph has {graph.num_nodes} nodes")


def _from_pyg(data: Any, num_nodes: int | None, edge_weight: Any) -> Graph:
    return Graph(
        _pyg_adjacency(data, num_nodes, edge_weight),
        x=getattr(data, "x", None),
        y=getattr(data, "y", None),
        train_mask=getattr(data, "train_mask", None),
        val_mask=getattr(data, "val_mask", None),
        test_mask=getattr(data, "test_mask", None),
    )


def _pyg_adjacency(data: Any, num_nodes: int | None, edge_weight: Any) -> csr_array[np.float64]:
    if data.edge_index is None:
        if getattr(data, "adj_t", None) is None:
            raise GraphError(f"{type(data).__name__} has no edge_index")
        return as_adjacency(data.adj_t, num_nodes, edge_weight)
    if num_nodes is None:
        num_nodes = data.num_nodes
    if edge_weight is None:
        edge_weight = getattr(data, "edge_weight", None)
    return adjacency_from_edges(data.edge_index, num_nodes, edge_weight)


def _from_networkx(source: Any) -> Graph:
    position = {node: i for i, node in enumerate(source.nodes)}
    edges = list(source.edges(data="weight"))
    for tail, head, weight in edges:
        if weight is None or (isinstance(weight, Real) and 0 <= float(weight) < math.inf):
            continue
        problem = f"weight {weight!r} is not a finite number of 0 or more"
        raise GraphError(f"edge ({tail!r}, {head!r}): {problem}")
    index = np.array([[position[u], position[v]] for u, v, _ in edges], np.int64).reshape(-1, 2)
    weights = [1.0 if weight is None else float(weight) for _, _, weight in edges]
    weighted = any(weight is not None for _, _, weight in edges)
    return Graph(
        adjacency_from_edges(index.T, len(position), weights if weighted else None),
        node_ids=tuple(map(str, position)),
        name=source.name or Graph.name,
    )
