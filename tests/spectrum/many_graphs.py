"""Sets of small graphs for tests: random ones, and the odd ones molecules come with."""

from __future__ import annotations

import networkx as nx
import numpy as np

from specformer.graphs import GraphSet


def from_networkx(graphs: list[nx.Graph], **fields: object) -> GraphSet:
    edges = [np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2) for graph in graphs]
    return GraphSet(
        num_nodes=np.array([len(graph) for graph in graphs]),
        num_edges=np.array([len(each) for each in edges]),
        edge_index=np.concatenate(edges).T,
        **fields,  # type: ignore[arg-type]
    )


def odd_graphs() -> list[nx.Graph]:
    """One atom, no bonds, several pieces, repeated eigenvalues, loops."""
    loop = nx.path_graph(3)
    loop.add_edge(1, 1)
    return [
        nx.empty_graph(1),
        nx.empty_graph(4),
        nx.path_graph(2),
        nx.disjoint_union(nx.cycle_graph(6), nx.empty_graph(2)),
        nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)),
        nx.complete_graph(7),
        nx.star_graph(9),
        nx.cycle_graph(8),
        nx.petersen_graph(),
        nx.hypercube_graph(3),
        loop,
    ]


def random_graphs(count: int, seed: int = 0) -> list[nx.Graph]:
    generator = np.random.default_rng(seed)
    return [
        nx.gnp_random_graph(int(generator.integers(1, 25)), 0.15, seed=int(generator.integers(1e6)))
        for _ in range(count)
    ]


def mixed_set(count: int = 40) -> GraphSet:
    relabelled = [nx.convert_node_labels_to_integers(graph) for graph in odd_graphs()]
    graphs = relabelled + random_graphs(count)
    order = np.random.default_rng(1).permutation(len(graphs))
    return from_networkx([graphs[i] for i in order])
