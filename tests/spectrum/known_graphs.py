"""Small graphs as adjacency matrices, with the eigenvalues a textbook gives for them."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

from specformer.graphs import as_adjacency

Array = NDArray[np.float64]


def adjacency(graph: nx.Graph) -> sp.csr_array:
    return sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=float))


def union(*parts: nx.Graph) -> nx.Graph:
    return nx.disjoint_union_all(parts)


def random_weighted(n: int, seed: int) -> nx.Graph:
    generator = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(n, 4 / n, seed=seed)
    for _, _, attributes in graph.edges(data=True):
        attributes["weight"] = generator.uniform(0.1, 5.0)
    return graph


#: Graphs of size n whose normalised Laplacian's eigenvalues have a closed form (Chung, 1997).
CLOSED_FORMS: dict[str, tuple[Callable[[int], nx.Graph], Callable[[int], Array]]] = {
    "ring": (nx.cycle_graph, lambda n: 1 - np.cos(2 * np.pi * np.arange(n) / n)),
    "path": (nx.path_graph, lambda n: 1 - np.cos(np.pi * np.arange(n) / (n - 1))),
    "star": (
        lambda n: nx.star_graph(n - 1),
        lambda n: np.array([0.0] + [1.0] * (n - 2) + [2.0]),
    ),
    "complete": (nx.complete_graph, lambda n: np.array([0.0] + [n / (n - 1)] * (n - 1))),
    "bipartite": (
        lambda n: nx.complete_bipartite_graph(n // 2, n - n // 2),
        lambda n: np.array([0.0] + [1.0] * (n - 2) + [2.0]),
    ),
    "edgeless": (nx.empty_graph, np.ones),
}


def closed_form(kind: str, n: int) -> tuple[sp.csr_array, Array]:
    graph, eigenvalues = CLOSED_FORMS[kind]
    return adjacency(graph(n)), np.sort(eigenvalues(n))


def hypercube(dimension: int) -> tuple[sp.csr_array, Array]:
    """2k/d with multiplicity d over k."""
    levels = np.array([bin(corner).count("1") for corner in range(2**dimension)])
    return adjacency(nx.hypercube_graph(dimension)), np.sort(2 * levels / dimension)


#: One of each kind of trouble: repeats, several components, isolated nodes, weights, loops.
SMALL = {
    "path": adjacency(nx.path_graph(7)),
    "ring": adjacency(nx.cycle_graph(8)),
    "star": adjacency(nx.star_graph(6)),
    "complete": adjacency(nx.complete_graph(6)),
    "grid": adjacency(nx.grid_2d_graph(4, 4)),
    "two triangles": adjacency(union(nx.complete_graph(3), nx.complete_graph(3))),
    "isolated": adjacency(union(nx.path_graph(4), nx.empty_graph(3))),
    "barbell": adjacency(nx.barbell_graph(4, 2)),
    "weighted": adjacency(random_weighted(14, seed=1)),
    "loops": as_adjacency([[0, 0, 1, 3], [0, 1, 2, 3]], num_nodes=5),
    "one node": sp.csr_array((1, 1)),
    "one edge": adjacency(nx.path_graph(2)),
}


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 9) -> sp.csr_array:
    """Any small graph, weighted or not; disconnected and isolated nodes are common."""
    n = draw(st.integers(2, max_nodes))
    pairs = [(i, j) for i in range(n) for j in range(i + 1)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=2 * n, unique=True))
    weight = st.sampled_from([1.0, 1.0, 2.0, 0.5])
    weights = [draw(weight) for _ in chosen]
    edges = np.array(chosen, dtype=int).reshape(-1, 2).T
    return as_adjacency(edges, num_nodes=n, edge_weight=weights)
