"""ARPACK with deflation: the contract, and that copies Krylov methods miss are found."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla
import torch
from tests.spectrum.known_graphs import Array, adjacency, closed_form, union
from tests.spectrum.solvers.solver_contract import SolverContract

from specformer.errors import SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import max_residual
from specformer.spectrum.solvers import lanczos
from specformer.spectrum.solvers.problem import Problem


class TestLanczos(SolverContract):
    size = 120

    def solve(
        self, laplacian: sp.csr_array, lowest: int, highest: int
    ) -> tuple[Array, torch.Tensor]:
        return lanczos.solve(Problem(laplacian, lowest, highest))


def test_every_copy_of_a_repeated_eigenvalue_is_found(caplog: pytest.LogCaptureFixture) -> None:
    components = [nx.lollipop_graph(5, 7)] * 30
    laplacian = normalised_laplacian(adjacency(union(*components)))
    with caplog.at_level(logging.DEBUG, "specformer"):
        values, _ = lanczos.solve(Problem(laplacian, 2, 0))
    assert "further copies found after deflation" in caplog.text
    np.testing.assert_allclose(values, np.zeros(30), atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_copies_of_one_at_the_cut_are_found(seed: int) -> None:
    """Where L has the eigenvalue 1, I − L has 0, which ARPACK may not find."""
    drawn = np.random.default_rng(seed)
    sizes = drawn.integers(20, 50, 3).tolist()
    between = np.full((3, 3), 0.02) + 0.88 * np.eye(3)
    graphs = [
        nx.disjoint_union_all(map(nx.complete_graph, sizes)),
        nx.barbell_graph(sizes[0], 6),
        nx.stochastic_block_model(sizes, between, seed=seed),
    ]
    graph = nx.convert_node_labels_to_integers(graphs[seed % 3])
    for node in range(len(graph), len(graph) + int(drawn.integers(2, 6))):
        graph.add_edges_from([(0, node)] if seed % 2 else [])
        graph.add_node(node)
    laplacian = normalised_laplacian(adjacency(graph))
    exact = np.linalg.eigvalsh(laplacian.toarray())
    pairs = max(1, int((exact < 1.0 - 1e-9).sum()) + int(drawn.integers(0, 2)))
    values, vectors = lanczos.solve(Problem(laplacian, pairs, 0))
    np.testing.assert_allclose(values, exact[: len(values)], atol=1e-9)
    assert len(values) == (exact <= exact[pairs - 1] + 1e-9).sum()
    assert max_residual(laplacian, torch.as_tensor(values.copy()), vectors) < 1e-9


@pytest.mark.parametrize(
    ("shape", "pairs", "why"),
    [
        ("star", (2, 0), "repeated too often"),
        ("ring", (95, 0), "95 of 100 eigenpairs are too many"),
        ("ring", (60, 60), "ends of the spectrum overlap"),
    ],
)
def test_what_it_cannot_solve_is_refused(shape: str, pairs: tuple[int, int], why: str) -> None:
    laplacian = normalised_laplacian(closed_form(shape, 100)[0])
    with pytest.raises(SpectrumError, match=why):
        lanczos.solve(Problem(laplacian, *pairs))


def test_copies_without_an_end_are_given_up_soon() -> None:
    laplacian = normalised_laplacian(closed_form("star", 801)[0])  # 799 copies of 1
    # ARPACK may lose its way among the copies before they are too many: both are refusals.
    refused = r"1[012]\d pairs were found, and its copies do not|ARPACK did not converge for \d+"
    with pytest.raises(SpectrumError, match=refused):
        lanczos.solve(Problem(laplacian, 20, 0))


def test_memory_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    # As measured: 161 MiB of 20,000 nodes, 215,000 entries and 200 pairs at both ends.
    measured: Any = SimpleNamespace(shape=(20_000, 20_000), nnz=215_000)
    need = lanczos.required_bytes(Problem(measured, 200, 200))
    assert need / 2**20 == pytest.approx(161, rel=0.05)
    laplacian = normalised_laplacian(closed_form("ring", 1000)[0])
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**20)
    message = "100 eigenpairs of 1,000 nodes need about 0.0 GiB with solver 'lanczos', 0.0 GiB are"
    with pytest.raises(SpectrumError, match=message):
        lanczos.solve(Problem(laplacian, 100, 0))
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**22)
    assert len(lanczos.solve(Problem(laplacian, 100, 0))[0]) == 101


def test_no_convergence_is_our_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(*_: object, **__: object) -> None:
        raise spla.ArpackNoConvergence("no", np.empty(0), np.empty((0, 0)))

    monkeypatch.setattr(spla, "eigsh", gives_up)
    with pytest.raises(SpectrumError, match="did not converge for 11 eigenpairs of 100 nodes"):
        lanczos.solve(Problem(normalised_laplacian(closed_form("ring", 100)[0]), 3, 0))
