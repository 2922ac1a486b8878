"""Graphs with negative weights, and the signed Laplacian, against closed forms and NumPy."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import specformer as sf
from specformer.graphs.signed import signed_adjacency

EDGES = np.array([[0, 1, 2], [1, 2, 0]])
WEIGHTS = np.array([1.0, -2.0, 3.0])
EXPECTED = np.array([[0.0, 1, 3], [1, 0, -2], [3, -2, 0]])


def sources() -> list[Any]:
    graph = nx.Graph()
    graph.add_nodes_from(range(3))
    graph.add_weighted_edges_from(zip(*EDGES.tolist(), WEIGHTS.tolist(), strict=True))
    edges, weights = torch.tensor(EDGES), torch.tensor(WEIGHTS)
    return [
        graph,
        sp.coo_array((WEIGHTS, tuple(EDGES)), shape=(3, 3)),
        torch.sparse_coo_tensor(edges, weights, (3, 3), check_invariants=True),
        Data(edge_index=edges, edge_weight=weights, num_nodes=3),
    ]


@pytest.mark.parametrize("source", sources(), ids=lambda each: type(each).__name__)
def test_every_source_may_have_negative_weights(source: Any) -> None:
    np.testing.assert_array_equal(signed_adjacency(source).toarray(), EXPECTED)
    np.testing.assert_array_equal(signed_adjacency(EDGES, edge_weight=WEIGHTS).toarray(), EXPECTED)


def test_an_all_negative_triangle_has_its_closed_form() -> None:
    """L = I + A/2 and A has the eigenvalues 2, −1, −1."""
    spectrum = sf.decompose(EDGES, edge_weight=-np.ones(3), dtype=torch.float64)
    torch.testing.assert_close(
        spectrum.eigenvalues, torch.tensor([0.5, 0.5, 2.0], dtype=torch.float64)
    )


def test_a_balanced_graph_has_the_spectrum_of_its_sizes() -> None:
    """Switching the signs of some nodes changes A to SAS, and eigenvectors to S U."""
    random = np.random.default_rng(0)
    edges = random.integers(0, 30, (2, 90))
    weight, sign = random.random(90) + 0.1, random.choice([-1.0, 1.0], 30)
    edges, place = np.unique(np.sort(edges, axis=0), axis=1, return_index=True)
    weight = weight[place]
    signed = weight * sign[edges[0]] * sign[edges[1]]
    one = sf.decompose(edges, 30, signed, dtype=torch.float64)
    other = sf.decompose(edges, 30, weight, dtype=torch.float64)
    torch.testing.assert_close(one.eigenvalues, other.eigenvalues)
    assert one.eigenvalues[0] == 0.0


@pytest.mark.parametrize("solver", ["chebyshev", "lanczos"])
def test_iterative_solvers_agree_with_numpy(solver: Any) -> None:
    """A triangle of negative weights has an eigenvalue 2 that an unsigned one does not have."""
    random = np.random.default_rng(1)
    edges = np.concatenate([random.integers(0, 300, (2, 900)), EDGES + 300], axis=1)
    edges = np.unique(np.sort(edges, axis=0), axis=1)
    weight = random.normal(size=edges.shape[1])
    weight[(edges >= 300).all(axis=0)] = -1.0
    adjacency = signed_adjacency(edges, 303, weight).toarray()
    degree = np.abs(adjacency).sum(axis=1)
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    expected = np.linalg.eigvalsh(np.eye(303) - adjacency / root / root[:, None])
    found = sf.decompose(edges, 303, weight, k=(5, 5), solver=solver, dtype=torch.float64)
    values = found.eigenvalues.numpy()
    np.testing.assert_allclose(values[:5], expected[:5], atol=1e-8)
    np.testing.assert_allclose(values[-5:], expected[-5:], atol=1e-8)


def test_a_pair_with_both_signs_is_refused() -> None:
    with pytest.raises(sf.GraphError, match="nodes 0 and 1 are joined by a positive and by a neg"):
        sf.decompose([[0, 1], [1, 0]], edge_weight=[1.0, -1.0])
