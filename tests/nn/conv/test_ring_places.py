"""Rings that pairs of nodes share, against NetworkX and against sets of atoms."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest
import torch
from tests.nn.molecules import MAX_RING, MOLECULES, molecule, pack

from specformer import reference
from specformer.errors import ConfigError
from specformer.nn.conv.pair_states import shared_rings

#: Fused rings, a cage, rings that share one atom, and a ring that is too large.
GRAPHS = [
    nx.compose(nx.cycle_graph(6), nx.cycle_graph([4, 5, 6, 7, 8])),
    nx.cubical_graph(),
    nx.compose(nx.cycle_graph(3), nx.cycle_graph([0, 3, 4, 5])),
    nx.cycle_graph(7),
]
RINGED = [*MOLECULES, *(molecule(graph, seed) for seed, graph in enumerate(GRAPHS))]


def by_networkx(graph: nx.Graph) -> torch.Tensor:
    n = graph.number_of_nodes()
    counts = torch.zeros(n, n, MAX_RING - 2)
    for ring in nx.chordless_cycles(graph, length_bound=MAX_RING):
        for i in ring:
            for j in ring:
                counts[i, j, : len(ring) - 2] += 1
    return counts


@pytest.mark.parametrize("padding", [{}, {"spare_nodes": 3, "spare_pairs": 50, "spare_rings": 4}])
def test_shared_rings(padding) -> None:
    batch = pack(RINGED, **padding)
    graphs = [nx.from_numpy_array((one.bonds > 0).any(dim=-1).numpy()) for one in RINGED]
    expected = torch.cat([by_networkx(graph).flatten(0, 1) for graph in graphs])
    found = shared_rings(batch, MAX_RING, torch.float32)
    assert torch.equal(found[: len(expected)], expected)
    assert not found[len(expected) :].any()
    assert expected.any()


def test_the_reference_finds_rings_as_sets_of_atoms() -> None:
    for one in RINGED:
        graph = nx.from_numpy_array((one.bonds > 0).any(dim=-1).numpy())
        assert torch.equal(reference.shared_rings(one.bonds, MAX_RING), by_networkx(graph))


def test_batches_without_their_rings_are_refused() -> None:
    batch = pack(MOLECULES)
    with pytest.raises(ConfigError, match=r"rings of up to 6 atoms, .* with max_ring=8"):
        shared_rings(batch, 8, torch.float32)
    with pytest.raises(ConfigError, match=r"has no rings, .* with max_ring=6"):
        shared_rings(replace(batch, rings=None), MAX_RING, torch.float32)
