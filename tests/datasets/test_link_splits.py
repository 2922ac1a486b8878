"""Splits of links: what trains, what is held out, and pairs that are no link."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.stats import chisquare

from specformer.datasets import csbm
from specformer.datasets.link_splits import NonLinks, links_of, split_links
from specformer.datasets.structural_features import with_structural_features
from specformer.errors import ConfigError
from specformer.graphs import Graph

PROTOCOL = "random-85-5-10"


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A graph with weights and with a node that is joined to itself."""
    drawn = csbm(0.6, num_nodes=120, seed=3)
    dense = drawn.adjacency.toarray() * np.add.outer(np.arange(120.0), np.arange(120.0))
    dense[7, 7] = 2.0
    return replace(drawn, adjacency=csr_array(dense))


def pairs(links: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(sorted(pair)) for pair in links.T.tolist()}


def test_every_link_is_in_one_part(graph) -> None:
    split = split_links(graph, PROTOCOL, seed=0)
    parts = [pairs(part) for part in (split.train, split.val, split.test)]
    rows, columns = graph.adjacency.nonzero()
    every = {(i, j) for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if i < j}
    assert set.union(*parts) == every == pairs(links_of(graph))
    assert sum(map(len, parts)) == len(every)
    assert [len(part) for part in parts[1:]] == [round(share * len(every)) for share in (0.05, 0.1)]


def test_the_training_graph_lacks_held_out_links_and_nothing_else(graph) -> None:
    split = split_links(graph, PROTOCOL, seed=0)
    expected = graph.adjacency.toarray()
    for i, j in pairs(split.val) | pairs(split.test):
        expected[i, j] = expected[j, i] = 0.0
    np.testing.assert_array_equal(split.graph.adjacency.toarray(), expected)
    assert split.graph.y is None
    np.testing.assert_array_equal(split.graph.x, graph.x)


def test_other_pairs_are_no_link_of_the_whole_graph(graph) -> None:
    split = split_links(graph, PROTOCOL, seed=0)
    for links, others in ((split.val, split.val_others), (split.test, split.test_others)):
        assert links.shape == others.shape
        assert not graph.adjacency.toarray()[others[0], others[1]].any()
        assert (others[0] != others[1]).all()


def test_structural_features_are_those_of_the_training_links(graph) -> None:
    split = split_links(with_structural_features(graph), PROTOCOL, seed=0)
    bare = replace(split.graph, x=None, feature_names=None)
    np.testing.assert_array_equal(split.graph.x, with_structural_features(bare).x)


def test_seeds_tell_splits_apart(graph) -> None:
    one, same, other = (split_links(graph, PROTOCOL, seed) for seed in (4, 4, 5))
    assert one.parts.fingerprint == same.parts.fingerprint != other.parts.fingerprint
    np.testing.assert_array_equal(one.test_others, same.test_others)


def test_pairs_without_a_link_are_drawn_evenly() -> None:
    adjacency = csr_array(csbm(0.2, num_nodes=12, degree=4.0, seed=0).adjacency)
    others = NonLinks(adjacency)
    free = np.argwhere(adjacency.toarray() + np.eye(12) == 0)
    assert others.count == len(free)
    drawn = others.draw(20_000, torch.Generator().manual_seed(0)).numpy()
    numbers = {tuple(pair): number for number, pair in enumerate(free.tolist())}
    counts = np.bincount([numbers[tuple(pair)] for pair in drawn.T.tolist()], minlength=len(free))
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("protocol", ["random-60-20-10", "official", "85-5-10"])
def test_shares_have_to_add_up(graph, protocol) -> None:
    with pytest.raises(ConfigError, match="random-85-5-10"):
        split_links(graph, protocol, 0)


def test_graphs_that_cannot_be_split_are_refused() -> None:
    path = Graph(csr_array(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)), name="path")
    with pytest.raises(ConfigError, match="path: 3 edges are too few"):
        split_links(path, PROTOCOL, 0)
    full = Graph(csr_array(1.0 - np.eye(12)), name="full")
    with pytest.raises(ConfigError, match="full: all nodes are linked to one another"):
        split_links(full, PROTOCOL, 0)
