from __future__ import annotations

import networkx as nx
import numpy as np
import torch

from specformer.baselines.graphs.parts.shortest_paths import ShortestPaths

#: Several shortest paths, several lengths, two pieces, one node.
GRAPHS = [
    nx.cycle_graph(6),
    nx.grid_2d_graph(2, 3),
    nx.disjoint_union(nx.path_graph(2), nx.cycle_graph(4)),
    nx.path_graph(6),
]
MOST = 4


def stacked() -> torch.Tensor:
    return torch.tensor(np.stack([nx.to_numpy_array(graph) for graph in GRAPHS]))


def test_distances_against_networkx() -> None:
    found = ShortestPaths.of(stacked(), MOST)
    for graph, distances, *counts in zip(GRAPHS, found.distance, *found.counts, strict=True):
        order = {node: number for number, node in enumerate(graph)}
        expected = torch.full((6, 6), MOST + 1)
        for one, reached in nx.all_pairs_shortest_path_length(graph):
            for other, length in reached.items():
                expected[order[one], order[other]] = min(length, MOST + 1)
                if length <= MOST:
                    paths = len(list(nx.all_shortest_paths(graph, one, other)))
                    assert counts[length][order[one], order[other]] == paths
        assert torch.equal(distances, expected)


def test_means_along_paths_against_networkx() -> None:
    hops_taken, channels = 2, 3
    adjacency = stacked()
    generator = torch.Generator().manual_seed(0)
    shape = (len(GRAPHS), hops_taken, channels, 6, 6)
    hops = torch.randn(shape, generator=generator, dtype=torch.float64) * adjacency[:, None, None]
    found = ShortestPaths.of(adjacency, MOST).mean_along(hops)
    for number, graph in enumerate(GRAPHS):
        order = {node: place for place, node in enumerate(graph)}
        expected = torch.zeros(channels, 6, 6, dtype=torch.float64)
        for one, reached in nx.all_pairs_shortest_path_length(graph):
            for other, length in reached.items():
                if not 0 < length <= MOST:
                    continue
                means = [
                    torch.stack(
                        [
                            hops[number, hop, :, order[a], order[b]]
                            for hop, (a, b) in enumerate(nx.utils.pairwise(path))
                            if hop < hops_taken
                        ]
                    ).mean(dim=0)
                    for path in nx.all_shortest_paths(graph, one, other)
                ]
                expected[:, order[one], order[other]] = torch.stack(means).mean(dim=0)
        torch.testing.assert_close(found[number], expected)
