"""Graphs that two sets have in common, against isomorphism by NetworkX and SMILES by RDKit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from tests.spectrum.many_graphs import from_networkx
from tests.training.small_graphs import small_set, with_numbers

from specformer.graphs import GraphSet, read_graph_set
from specformer.graphs.formats.smiles import read_smiles
from specformer.graphs.same_graphs import shared_with


def relabelled(graphs: GraphSet, seed: int = 0) -> GraphSet:
    """The same graphs with the nodes, and which end of a bond comes first, in another order."""
    generator = np.random.default_rng(seed)
    order = np.concatenate(
        [
            start + generator.permutation(size)
            for start, size in zip(graphs.node_start[:-1], graphs.num_nodes, strict=True)
        ]
    )
    new = np.empty_like(order)
    new[order] = np.arange(len(order))
    shift = np.repeat(graphs.node_start[:-1], graphs.num_edges)
    edges = new[graphs.edge_index + shift] - shift
    return replace(
        graphs,
        node_feat=graphs.node_feat[order],
        x=None if graphs.x is None else graphs.x[order],
        edge_index=np.where(generator.random(edges.shape[1]) < 0.5, edges, edges[::-1]),
    )


def as_networkx(graphs: GraphSet) -> list[nx.Graph]:
    found = []
    for number in range(len(graphs)):
        one = graphs.subset([number])
        graph = nx.Graph()
        graph.add_nodes_from((n, {"of": tuple(row)}) for n, row in enumerate(one.node_feat))
        ends = zip(one.edge_index.T.tolist(), one.edge_feat.tolist(), strict=True)
        graph.add_edges_from((a, b, {"of": tuple(row)}) for (a, b), row in ends)
        found.append(graph)
    return found


def test_equal_graphs_are_those_that_networkx_finds_isomorphic() -> None:
    """Sixty graphs of few nodes and bonds, so that some are the same."""
    generator = np.random.default_rng(3)
    drawn = [nx.gnp_random_graph(4, 0.4, seed=seed) for seed in range(60)]
    bonds = sum(graph.number_of_edges() for graph in drawn)
    graphs = from_networkx(
        drawn,
        node_feat=generator.integers(0, 2, (240, 1)),
        edge_feat=generator.integers(0, 2, (bonds, 1)),
    )
    ours, others = graphs.subset(range(30)), relabelled(graphs.subset(range(30, 60)))

    def like(one: dict[str, object], other: dict[str, object]) -> bool:
        return one["of"] == other["of"]

    expected = [
        any(nx.is_isomorphic(a, b, node_match=like, edge_match=like) for b in as_networkx(others))
        for a in as_networkx(ours)
    ]
    assert 3 < sum(expected) < 27
    assert shared_with(ours, others).tolist() == expected


def test_numbers_of_nodes_count() -> None:
    graphs = with_numbers(small_set(20))
    assert shared_with(graphs, relabelled(graphs)).all()
    assert graphs.x is not None
    assert not shared_with(graphs, replace(graphs, x=graphs.x + 1)).any()
    zeros = replace(graphs, x=np.zeros_like(graphs.x))
    assert shared_with(zeros, replace(graphs, x=-zeros.x)).all()


def test_molecules_written_in_two_ways_are_the_same() -> None:
    pytest.importorskip("rdkit")
    ours = read_smiles(["CCO", "OC(=O)c1ccccc1", "C1CCCCC1CC(N)=O", "CC(C)O", "[Na+].[Cl-]"])
    others = read_smiles(["OCC", "c1ccccc1C(O)=O", "NC(=O)CC1CCCCC1", "CCCO", "[Cl-].[Na+]"])
    found = shared_with(ours.graphs, others.graphs)
    assert found.tolist() == [True, True, True, False, True]


def test_molhivs_molecules_all_differ(shared_data: Path) -> None:
    graphs = read_graph_set(shared_data / "molhiv.npz").subset(range(0, 41_127, 10))
    half = len(graphs) // 2
    first, second = graphs.subset(range(half)), graphs.subset(range(half, len(graphs)))
    assert not shared_with(first, second).any()
    assert shared_with(first, relabelled(graphs)).all()


def test_a_chiral_molecule_written_in_two_ways_may_look_like_two() -> None:
    """OGB's column of chirality depends on the order of the neighbours, as the docs say."""
    chem = pytest.importorskip("rdkit.Chem")
    ours, others = ["C[C@H](N)C(=O)O"], ["N[C@@H](C)C(=O)O"]
    assert chem.CanonSmiles(ours[0]) == chem.CanonSmiles(others[0])
    assert not shared_with(read_smiles(ours).graphs, read_smiles(others).graphs).any()
    by_one = [chem.CanonSmiles(smiles) for smiles in (*ours, *others)]
    assert shared_with(read_smiles(by_one[:1]).graphs, read_smiles(by_one[1:]).graphs).all()
