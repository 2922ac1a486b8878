"""Small random graphs with features and targets, their spectra and their store."""

from __future__ import annotations

import networkx as nx
import numpy as np
from tests.spectrum.many_graphs import from_networkx

from specformer.datasets.packed import GraphStore
from specformer.graphs import GraphSet
from specformer.spectrum import decompose_many


def coloured_set(count: int = 12, seed: int = 0) -> GraphSet:
    """Random graphs with random features, one atom and one without bonds among them."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(2, 9, count)
    graphs = [nx.gnp_random_graph(int(n), 0.4, seed=int(generator.integers(1e6))) for n in sizes]
    plain = from_networkx([nx.empty_graph(1), nx.empty_graph(3), *graphs])
    return from_networkx(
        [nx.empty_graph(1), nx.empty_graph(3), *graphs],
        node_feat=generator.integers(0, 300, (int(plain.num_nodes.sum()), 2)),
        edge_feat=generator.integers(0, 3, (int(plain.num_edges.sum()), 2)),
        y=generator.standard_normal((len(plain), 2)),
    )


GRAPHS = coloured_set()
SPECTRA = decompose_many(GRAPHS)
STORE = GraphStore.build(GRAPHS, SPECTRA)
