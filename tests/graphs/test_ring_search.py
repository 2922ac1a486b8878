"""Rings against NetworkX, RDKit and closed forms."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from tests.spectrum.many_graphs import from_networkx, odd_graphs, random_graphs

from specformer.errors import ConfigError, GraphError
from specformer.graphs import GraphSet, RingSet, find_rings, read_smiles, ring_search

GRAPHS = [*odd_graphs(), *random_graphs(40)]


def by_graph(found: RingSet) -> list[list[list[int]]]:
    """The rings of each graph, without padding."""
    whole = [[atom for atom in row if atom >= 0] for row in found.atoms.tolist()]
    ends = np.cumsum(found.counts).tolist()
    return [whole[end - n : end] for end, n in zip(ends, found.counts.tolist(), strict=True)]


def turned(ring: list[int]) -> tuple[int, ...]:
    """The same ring from its least atom towards the lesser neighbour."""
    at = ring.index(min(ring))
    ring = ring[at:] + ring[:at]
    return tuple(ring if ring[1] < ring[-1] else [ring[0], *ring[:0:-1]])


def lengths(graph: nx.Graph, max_length: int) -> dict[int, int]:
    """How many rings there are of each length."""
    (found,) = by_graph(find_rings(from_networkx([graph]), max_length))
    sizes, counts = np.unique([len(ring) for ring in found], return_counts=True)
    return dict(zip(sizes.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("max_length", [3, 5, 8, 20])
def test_against_networkx(max_length: int) -> None:
    plain = [nx.convert_node_labels_to_integers(graph) for graph in GRAPHS]
    found = by_graph(find_rings(from_networkx(plain), max_length))
    for graph, own in zip(plain, found, strict=True):
        simple = nx.Graph(graph)
        simple.remove_edges_from(list(nx.selfloop_edges(simple)))
        expected = nx.chordless_cycles(simple, length_bound=max_length)
        assert sorted(map(turned, own)) == sorted(map(turned, expected))


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (nx.complete_graph(9), {3: math.comb(9, 3)}),
        (nx.cycle_graph(12), {12: 1}),
        (nx.complete_bipartite_graph(4, 5), {4: math.comb(4, 2) * math.comb(5, 2)}),
        (nx.convert_node_labels_to_integers(nx.hypercube_graph(3)), {4: 6, 6: 4}),  # cubane
        (nx.petersen_graph(), {5: 12, 6: 10}),
        (nx.dodecahedral_graph(), {5: 12, 9: 20, 10: 36}),
        (nx.random_labeled_tree(30, seed=0), {}),
    ],
)
def test_closed_forms(graph: nx.Graph, expected: dict[int, int]) -> None:
    longest = 10 if len(graph) == 20 else 12
    assert lengths(graph, longest) == expected


def test_a_longer_ring_than_asked_for_is_none() -> None:
    assert lengths(nx.cycle_graph(7), 6) == {}
    assert lengths(nx.cycle_graph(7), 7) == {7: 1}


def test_rings_of_molecules_are_rdkits() -> None:
    """In these no ring is a sum of others, so the smallest set of rings has all."""
    chem = pytest.importorskip("rdkit.Chem", reason="the extra 'chem' is not installed")
    smiles = [
        "c1ccccc1",
        "c1ccc2ccccc2c1",
        "CC(=O)Oc1ccccc1C(=O)O",
        "C1CC2(C1)CCCC2.CCO",
        "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
        "c1ccc(cc1)CCC1CCCCCCCCCCC1",
    ]
    found = by_graph(find_rings(read_smiles(smiles).graphs, 18))
    for text, own in zip(smiles, found, strict=True):
        expected = chem.GetSymmSSSR(chem.MolFromSmiles(text))
        assert sorted(map(turned, own)) == sorted(turned(list(ring)) for ring in expected)


def test_graphs_in_small_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = from_networkx(GRAPHS)
    whole = by_graph(find_rings(graphs, 8))
    monkeypatch.setattr(ring_search, "_BONDS_AT_ONCE", 7)
    assert by_graph(find_rings(graphs, 8)) == whole
    monkeypatch.setattr(ring_search, "_BONDS_AT_ONCE", 10_000)
    monkeypatch.setattr(ring_search, "_MOST_PATHS", 3_000)
    assert by_graph(find_rings(graphs, 8)) == whole


def test_a_graph_of_too_many_paths_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_search, "_MOST_PATHS", 100)
    graphs = from_networkx([nx.cycle_graph(5), nx.complete_graph(20), nx.path_graph(3)])
    with pytest.raises(GraphError, match=r"graph 1 has too many paths .* lower model.max_ring"):
        find_rings(graphs, 8)


def test_nothing_to_find() -> None:
    found = find_rings(GraphSet([1, 2], [0, 1], [[0], [1]]), 6)
    assert found.counts.tolist() == [0, 0]
    assert found.atoms.shape == (0, 6)


def test_less_than_a_triangle_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most 2 atoms do not exist: the smallest has 3"):
        find_rings(GraphSet([1], [0], []), 2)
