"""Bonds, distances and random walks of a batch, against loops, NetworkX and PyG."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import torch
from tests.baselines.graphs.small_models import edge_index
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from specformer.baselines.graphs.bonds import (
    Bonds,
    ShortestPaths,
    return_probabilities,
    segment_gather,
)
from specformer.baselines.graphs.graph_baseline import BondEmbedding
from specformer.kernels.segments import contiguous_segments, scattered_segments

PADDED = pack(MOLECULES, spare_nodes=3, spare_pairs=5, spare_graphs=1, max_nodes=8)
BONDS = Bonds.of(PADDED, torch.float64)
ADJACENCY = [(one.bonds.sum(dim=-1) > 0).double() for one in MOLECULES]
ROWS = sum(len(one.nodes) for one in MOLECULES)


def test_degrees_and_squares() -> None:
    degrees = torch.cat([part.sum(dim=1) for part in ADJACENCY])
    assert torch.equal(BONDS.degree[:ROWS, 0], degrees)
    assert not BONDS.degree[ROWS:].any()
    assert torch.equal(BONDS.is_isolated[:ROWS, 0], degrees == 0)
    squares = BONDS.adjacency()
    assert squares.shape == (7, 8, 8)
    for square, part in zip(squares, [*ADJACENCY, torch.zeros(0, 0)], strict=True):
        n = len(part)
        assert torch.equal(square[:n, :n], part.double())
        assert square.sum() == part.sum()
    assert BONDS.counted.number == sum(part.sum() for part in ADJACENCY)


def test_sums_over_neighbours() -> None:
    messages, gates = random(ROWS + 3, 4), random(len(BONDS.slots.index), 4, seed=1)
    start = 0
    plain, gated = [], []
    for number, part in enumerate(ADJACENCY):
        rows = messages[start : start + len(part)]
        own = BONDS.to_dense_adj(gates)[number, :, : len(part), : len(part)]
        plain.append(part @ rows)
        gated.append(torch.einsum("cij,jc->ic", own, rows))
        start += len(part)
    torch.testing.assert_close(BONDS.sum(BONDS.at_sources(messages))[:ROWS], torch.cat(plain))
    torch.testing.assert_close(
        BONDS.sum(BONDS.at_sources(messages) * gates)[:ROWS], torch.cat(gated)
    )


def test_room_for_bonds_changes_nothing() -> None:
    """A batch that says how many bonds it has lists those alone, in the same order."""
    number = int(BONDS.counted.number)
    for spare in (0, 4):
        listed = Bonds.of(replace(PADDED, num_bonds=number // 2 + spare), torch.float64)
        assert len(listed.slots.index) == number + 2 * spare
        assert torch.equal(listed.degree, BONDS.degree)
        assert torch.equal(listed.adjacency(), BONDS.adjacency())
        assert torch.equal(listed.kind[:number], BONDS.kind[:number])
        assert torch.equal(listed.slots.index[:number], BONDS.slots.index[:number])
        rows = random(ROWS + 3, 4)
        torch.testing.assert_close(
            listed.sum(listed.at_sources(rows)), BONDS.sum(BONDS.at_sources(rows))
        )


def test_there_and_back() -> None:
    rows = random(ROWS + 3, 4)
    dense = BONDS.layout.to_dense(rows)
    assert torch.equal(dense[1, :6], rows[5:11])
    assert not dense[1, 6:].any()
    back = BONDS.layout.from_dense(dense)
    assert torch.equal(back[:ROWS], rows[:ROWS])
    assert not back[ROWS:].any()
    number, joined = int(BONDS.counted.number), PADDED.bond > 0
    messages = random(len(BONDS.slots.index), 3)
    again = BONDS.layout.pair_slots.gather(BONDS.slots.scatter(messages))
    assert torch.equal(again[joined], messages[:number])
    assert not again[~joined].any()


def test_values_by_kind() -> None:
    kinds = random(len(PADDED.bond_table), 3).requires_grad_()
    number = int(BONDS.counted.number)
    expected = kinds[PADDED.bond[PADDED.bond > 0]]
    assert not BONDS.bond_vectors(kinds)[number:].any()
    found = BONDS.bond_vectors(kinds)[:number]
    assert torch.equal(found, expected)
    probe = random(*found.shape, seed=1)
    (gradient,) = torch.autograd.grad((found * probe).sum(), kinds)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * probe).sum(), kinds)[0])


def test_gradient_of_spread() -> None:
    values = random(3, 2).requires_grad_()
    for segments in (
        scattered_segments(torch.tensor([2, 0, 0, 1, 3]), 3),
        contiguous_segments(torch.tensor([2, 0, 1]), 4),
    ):
        assert torch.autograd.gradcheck(lambda x, own=segments: segment_gather(x, own), values)


def test_bonds_are_embedded_by_their_own_values() -> None:
    embedding = BondEmbedding([3, 2], 4)
    found = embedding(torch.tensor([[0, 0], [1, 1], [3, 2]]))
    assert torch.equal(found[1], embedding.weight[0] + embedding.weight[3])
    assert torch.equal(found[2], embedding.weight[2] + embedding.weight[4])


def test_return_probabilities_against_pyg() -> None:
    batch = pack(MOLECULES, spare_nodes=2, spare_pairs=9, max_nodes=8)
    found = return_probabilities(Bonds.of(batch, torch.float64), 6)
    data = Data(edge_index=edge_index(batch), num_nodes=len(batch.graph))
    expected = AddRandomWalkPE(6, attr_name="walks")(data).walks.double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # theirs is in float32


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
