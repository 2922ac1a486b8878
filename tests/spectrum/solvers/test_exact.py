"""Vectors known beforehand: the null space of L, and of 2 − L for bipartite components."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from tests.spectrum.known_graphs import SMALL, adjacency, graphs, random_weighted, union

from specformer.graphs import normalised_laplacian
from specformer.spectrum.solvers.exact import known_vectors


def check(graph: sp.csr_array, isolated: str = "one") -> None:
    laplacian = normalised_laplacian(graph, isolated=isolated)  # type: ignore[arg-type]
    n = laplacian.shape[0]
    exact = np.linalg.eigvalsh(laplacian.toarray())
    for sign, value in ((1, 0.0), (-1, 2.0)):
        shifted = sp.csr_array(sp.eye_array(n) - laplacian)
        known = known_vectors(shifted, sign, graph.sum(axis=1))
        assert known.complete
        assert known.count == np.sum(np.abs(exact - value) < 1e-9)
        basis = torch.full((n, known.count + 1), torch.nan, dtype=torch.float64)
        known.write(basis)
        vectors = basis[:, : known.count].numpy()
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(known.count), atol=1e-12)
        np.testing.assert_allclose(laplacian @ vectors, value * vectors, atol=1e-12)


@pytest.mark.parametrize("isolated", ["one", "zero"])
@pytest.mark.parametrize("name", SMALL)
def test_small_graphs(name: str, isolated: str) -> None:
    check(SMALL[name], isolated)


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_any_graph(graph: sp.csr_array) -> None:
    check(graph)


def test_many_components() -> None:
    parts = [nx.cycle_graph(4), nx.cycle_graph(5), nx.star_graph(6), nx.empty_graph(2)]
    check(adjacency(union(*parts * 3, random_weighted(40, seed=0))))


def test_wrong_degrees_are_not_believed() -> None:
    graph = adjacency(union(random_weighted(60, seed=4), nx.cycle_graph(5)))
    laplacian = normalised_laplacian(graph)
    shifted = sp.csr_array(sp.eye_array(laplacian.shape[0]) - laplacian)
    known = known_vectors(shifted)  # neighbours counted: right for the ring, wrong for weights
    assert not known.complete
    vectors = torch.zeros(laplacian.shape[0], known.count, dtype=torch.float64)
    known.write(vectors)
    assert known.count >= 1
    np.testing.assert_allclose(laplacian @ vectors.numpy(), 0.0, atol=1e-9)
