"""A few graphs with kinds of atoms and bonds."""

from __future__ import annotations

import networkx as nx
import numpy as np

from specformer.graphs import GraphSet


def molecules() -> GraphSet:
    graphs = [nx.path_graph(3), nx.cycle_graph(5), nx.star_graph(3), nx.path_graph(2)] * 5
    random = np.random.default_rng(0)
    edges = [np.array(graph.edges).T for graph in graphs]
    nodes = [graph.number_of_nodes() for graph in graphs]
    return GraphSet(
        nodes,
        [each.shape[1] for each in edges],
        np.concatenate(edges, axis=1),
        node_feat=random.integers(4, size=(sum(nodes), 1)),
        edge_feat=random.integers(3, size=(sum(each.shape[1] for each in edges), 1)),
        y=random.normal(size=(len(graphs), 1)),
    )
