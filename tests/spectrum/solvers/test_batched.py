"""The parts of a batched solve, each against its form for a single graph."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from specformer.graphs import as_adjacency, normalised_laplacian
from specformer.spectrum.distinct import snap
from specformer.spectrum.solvers import batched


def test_bonds_become_symmetric_matrices() -> None:
    ends, owner = torch.tensor([[0, 2, 1], [1, 2, 0]]), torch.tensor([0, 0, 2])
    dense = batched.adjacency(ends, owner, count=3, n=3)
    assert dense[0].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert not dense[1].any()
    assert dense[2].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("isolated", ["one", "zero"])
def test_laplacians_are_those_of_single_graphs(isolated: Any) -> None:
    graphs = [nx.gnp_random_graph(8, 0.25, seed=seed) for seed in range(5)]
    dense = torch.stack([torch.as_tensor(nx.to_numpy_array(graph)) for graph in graphs])
    ours = batched.normalised(dense, "laplacian", isolated)
    for graph, laplacian in zip(graphs, ours, strict=True):
        single = normalised_laplacian(as_adjacency(graph), isolated=isolated)
        np.testing.assert_allclose(laplacian, single.toarray(), atol=1e-15)
        assert torch.equal(laplacian, laplacian.T)


def test_snapping_is_that_of_a_single_spectrum() -> None:
    rows = np.array(
        [
            [-1e-17, 1e-12, 0.4, 0.4 + 1e-9, 1.0 - 1e-10, 1.3, 2.0 + 1e-15],
            [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0 + 1e-13],
        ]
    )
    ours = batched.snap(torch.as_tensor(rows), 1e-8, lowest=0.0)
    for row, snapped in zip(rows, ours, strict=True):
        np.testing.assert_allclose(snapped, snap(row), atol=1e-15)
    assert ours[0, :2].tolist() == [0.0, 0.0]
    assert (ours[0, 2] == ours[0, 3], ours[0, -1].item()) == (True, 2.0)
    assert (ours[2] == 1.0).all()
    low = batched.snap(torch.tensor([[-1.0 - 1e-12, 1.0 + 1e-12]]).double(), 1e-8, lowest=-1.0)
    assert low.tolist() == [[-1.0, 1.0]]


def test_signs_do_not_depend_on_the_last_digits() -> None:
    column = torch.tensor([[0.5, -0.5, 0.5, -0.5]]).T
    for noise in (1e-7, -1e-7):
        for sign in (1, -1):
            shaken = (sign * column + noise * torch.tensor([[1.0, 1, -1, -1]]).T).unsqueeze(0)
            assert batched.canonical_signs(shaken)[0, 0, 0] > 0


def test_rayleigh_quotients_repair_a_float32_solve() -> None:
    graph = nx.to_numpy_array(nx.random_regular_graph(3, 60, seed=0))
    operator = batched.normalised(torch.as_tensor(graph)[None], "laplacian", "one")
    exact = torch.linalg.eigvalsh(operator)
    plain = torch.linalg.eigvalsh(operator.float()).double()
    refined, vectors = batched.eigenpairs(operator, torch.float32)
    assert (refined - exact).abs().max() < 1e-9 < (plain - exact).abs().max()
    assert (refined.diff() >= 0).all()
    residual, error = batched.errors(operator, refined, vectors).tolist()
    assert residual < 1e-5
    assert error < 1e-5


def test_errors_are_measured() -> None:
    operator = torch.diag(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))[None]
    values, vectors = torch.tensor([[0.0, 1.0, 2.5]]).double(), torch.eye(3).double()[None]
    assert batched.errors(operator, values, vectors).tolist() == [0.5, 0.0]
    assert batched.errors(operator, values, 2 * vectors).tolist() == [1.0, 3.0]
    assert batched.errors(operator, values, torch.nan * vectors).isnan().all()
