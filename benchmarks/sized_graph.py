r"""A random graph as large as Penn94, which is not shipped, with similar degrees and features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from specformer.graphs import Graph

#: Its name in results.
NAME = "penn94-sized"


@dataclass(frozen=True)
class GraphSizes:
    """Sizes of a graph; by default those of Penn94."""

    nodes: int = 41_554
    edges: int = 1_362_229
    features: int = 4_814
    pairs: int = 6_000


def sized_graph(sizes: GraphSizes | None = None) -> Graph:
    """A random graph with two classes and five one-hot features per node, always the same.

    Edges that are drawn twice count once.
    """
    sizes = sizes or GraphSizes()
    random = np.random.default_rng(0)
    popularity = random.lognormal(sigma=1.0, size=sizes.nodes)
    ends = random.choice(sizes.nodes, (2, sizes.edges), p=popularity / popularity.sum())
    one_way = sp.coo_array((np.ones(sizes.edges), tuple(ends)), (sizes.nodes,) * 2)
    adjacency = sp.csr_array(one_way + one_way.T)
    adjacency.data[:] = 1.0
    columns = random.integers(sizes.features, size=(sizes.nodes, 5)).ravel()
    rows = np.repeat(np.arange(sizes.nodes), 5)
    x = sp.csr_array((np.ones(rows.size), (rows, columns)), (sizes.nodes, sizes.features))
    y = random.integers(2, size=sizes.nodes)
    return Graph(adjacency, x=x.astype(np.float32), y=y, name=NAME)
