"""Graphs that occur twice, by NetworkX's isomorphism; fragments, counted by hand and by RDKit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from tests.spectrum.many_graphs import from_networkx
from tests.training.small_graphs import small_set, with_numbers

from specformer.graphs import GraphSet, fragment_counts, read_graph_set, read_smiles
from specformer.graphs.colours import shared_with


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


# --- fragments ------------------------------------------------------------------------------------

#: So many columns that the fragments of these tests do not share any.
WIDE = 2**18


def counted_by_hand(graphs: GraphSet) -> list[Counter]:
    """Fragments as tuples: nodes, nodes with their neighbours, single categories."""
    found = []
    for graph in as_networkx(graphs):
        of = dict(graph.nodes(data="of"))
        bonds = [kind for _, _, kind in graph.edges(data="of")]
        count = Counter(("node", kind) for kind in of.values())
        for node in graph:
            near = [(kind, of[other]) for _, other, kind in graph.edges(node, data="of")]
            count["near", of[node], tuple(sorted(near))] += 1
        for name, rows in (("node", of.values()), ("bond", bonds)):
            count.update((name, place, value) for row in rows for place, value in enumerate(row))
        found.append(count)
    return found


def in_columns(counts: list[Counter]) -> np.ndarray:
    """The counts as a table, with the columns in lexicographic order."""
    keys = {key for count in counts for key in count}
    return by_column(np.array([[count[key] for key in keys] for count in counts]))


def by_column(table: np.ndarray) -> np.ndarray:
    used = table[:, table.any(axis=0)]
    return used[:, np.lexsort(used)]


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_fragments_are_those_counted_by_hand(columns: int) -> None:
    draw = np.random.default_rng(columns)
    drawn = [nx.gnp_random_graph(1 + seed % 7, 0.5, seed=seed) for seed in range(40)]
    nodes, bonds = (sum(map(count, drawn)) for count in (len, nx.Graph.number_of_edges))
    graphs = from_networkx(
        drawn,
        node_feat=draw.integers(0, 3, (nodes, columns)),
        edge_feat=draw.integers(0, 2, (bonds, columns)),
    )
    found = fragment_counts(graphs, WIDE)
    np.testing.assert_array_equal(by_column(found), in_columns(counted_by_hand(graphs)))
    np.testing.assert_array_equal(fragment_counts(relabelled(graphs), WIDE), found)
    some = [30, 2, 17]
    np.testing.assert_array_equal(fragment_counts(graphs.subset(some), WIDE), found[some])
    folded = fragment_counts(graphs, 8)
    np.testing.assert_array_equal(folded.sum(axis=1), found.sum(axis=1))


def test_fragments_around_atoms_are_rdkits() -> None:
    """RDKit hashes other numbers, but to the same groups of equal surroundings."""
    pytest.importorskip("rdkit")
    from rdkit import Chem
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    texts = ["CCO", "c1ccccc1C(=O)O", "[Na+].[Cl-]", "CC(C)C#N", "C1CCCCC1N", "OCC=C", "NCCO"]
    graphs = read_smiles(texts).graphs
    kinds = {tuple(row): 1 + place for place, row in enumerate(np.unique(graphs.node_feat, axis=0))}
    links = {tuple(row): 1 + place for place, row in enumerate(np.unique(graphs.edge_feat, axis=0))}
    generator = GetMorganGenerator(radius=1, includeRedundantEnvironments=True)
    theirs = []
    for number, text in enumerate(texts):
        one = graphs.subset([number])
        counts = generator.GetSparseCountFingerprint(
            Chem.MolFromSmiles(text),
            customAtomInvariants=[kinds[tuple(row)] for row in one.node_feat],
            customBondInvariants=[links[tuple(row)] for row in one.edge_feat],
        )
        theirs.append(Counter(counts.GetNonzeroElements()))
    ours = [
        Counter({key: n for key, n in count.items() if key[0] == "near" or len(key) == 2})
        for count in counted_by_hand(graphs)
    ]
    # Of an atom without bonds, RDKit counts the surroundings only once.
    alone = [key for count in ours for key in count if key[0] == "near" and not key[2]]
    for count in ours:
        for key in alone:
            del count[key]
    np.testing.assert_array_equal(in_columns(ours), in_columns(theirs))


def test_numbers_are_not_counted_and_counts_have_a_limit() -> None:
    graphs = with_numbers(small_set(20))
    other = replace(graphs, x=graphs.x + 1, edge_x=None)
    np.testing.assert_array_equal(fragment_counts(other, 64), fragment_counts(graphs, 64))
    many = GraphSet(num_nodes=[40_000], num_edges=[0], edge_index=np.zeros((2, 0), int))
    assert fragment_counts(many, 64).max() == 32_767
