"""LAPACK: the contract, and memory asked for before it is taken."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import SMALL, Array, adjacency, closed_form
from tests.spectrum.solvers.solver_contract import Single, SolverContract

from specformer import decompose
from specformer.errors import SpectrumError
from specformer.files.host_memory import _installed_bytes
from specformer.graphs import normalised_laplacian
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import max_residual
from specformer.spectrum.solvers import dense
from specformer.spectrum.solvers.dense import symmetric_bases
from specformer.spectrum.solvers.problem import Problem
from specformer.testing import assert_eigenpairs

CPU = torch.device("cpu")


class TestDense(SolverContract):
    size = 12
    accuracy = 1e-12

    def solve(
        self, laplacian: sp.csr_array, lowest: int, highest: int
    ) -> tuple[Array, torch.Tensor]:
        return dense.solve(Problem(laplacian, lowest, highest))

    @pytest.mark.parametrize("name", SMALL)
    def test_small_graphs(self, name: str) -> None:
        n = SMALL[name].shape[0]
        assert len(self.check(SMALL[name], n, 0)) == n

    @pytest.mark.parametrize("n", [3, 4, 5, 50])
    @pytest.mark.parametrize("kind", ["ring", "path", "star", "complete", "edgeless"])
    def test_complete_closed_forms(self, kind: str, n: int) -> None:
        graph, exact = closed_form(kind, n)
        np.testing.assert_allclose(self.check(graph, n, 0, exact), exact, atol=1e-12)


def test_float32_is_refined() -> None:
    laplacian = normalised_laplacian(closed_form("ring", 300)[0])
    exact = closed_form("ring", 300)[1]
    values, vectors = dense.solve(Single(laplacian, 300, 0))
    assert vectors.dtype == torch.float32
    np.testing.assert_allclose(values, exact, atol=1e-8)
    plain = torch.linalg.eigvalsh(torch.tensor(laplacian.toarray()).float()).double().numpy()
    assert np.abs(plain - exact).max() > 1e-8
    assert max_residual(laplacian, torch.tensor(values).float(), vectors) < 1e-5
    assert dense.required_bytes(1000, CPU, torch.float32) == 16_000_000


def test_memory_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "available_bytes", lambda device: 3 * 2**30)
    message = "a dense decomposition of 20,000 nodes needs about 11.9 GiB on cpu, 3.0 GiB are free"
    assert dense.refusal(20_000, CPU) == message
    assert dense.refusal(5_000, CPU) is None
    monkeypatch.setattr(dense, "_LITTLE", 0)
    monkeypatch.setattr(devices, "available_bytes", lambda device: 1000)
    with pytest.raises(SpectrumError, match=r"needs about 0\.0 GiB.*with solver='chebyshev'"):
        dense.solve(Problem(normalised_laplacian(SMALL["grid"]), 1, 0))


def test_more_nodes_than_lapack_counts_are_refused() -> None:
    assert dense.refusal(32_701, CPU) == (
        "LAPACK on the CPU takes at most 32,700 nodes, the graph has 32,701 and would need about "
        "31.9 GiB"
    )


@pytest.mark.parametrize(
    ("num_nodes", "dtype", "gigabytes"),
    [(41_554, torch.float32, 38.7), (18_660, torch.float64, 16.0)],  # on an H200
    ids=str,
)
def test_a_gpu_needs_what_was_measured(
    num_nodes: int, dtype: torch.dtype, gigabytes: float
) -> None:
    need = dense.required_bytes(num_nodes, torch.device("cuda"), dtype)
    assert need / 2**30 == pytest.approx(gigabytes, rel=0.05)


def test_memory_is_known() -> None:
    assert dense.required_bytes(1000, CPU) == 32_000_000
    assert 2**20 < devices.available_bytes(CPU) < 2**50
    assert _installed_bytes() >= devices.available_bytes(CPU)


def grid(rows: int, columns: int) -> tuple[object, list[Array]]:
    """A grid with its two mirrors."""
    places = np.arange(rows * columns).reshape(rows, columns)
    mirrors = [places[::-1].ravel(), places[:, ::-1].ravel()]
    return adjacency(nx.grid_2d_graph(rows, columns)), mirrors


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (5, 4), (3, 7), (1, 5), (2, 2)])
def test_a_grid_splits_into_four(rows: int, columns: int) -> None:
    graph, mirrors = grid(rows, columns)
    n = rows * columns
    bases = symmetric_bases(normalised_laplacian(graph), mirrors)
    together = np.concatenate([basis.toarray() for basis in bases], axis=1)
    np.testing.assert_allclose(together.T @ together, np.eye(n), atol=1e-15)
    plain, split = (decompose(graph, mirrors=which, dtype=torch.float64) for which in ((), mirrors))
    torch.testing.assert_close(split.eigenvalues, plain.eigenvalues, rtol=0, atol=1e-13)
    torch.testing.assert_close(split.distinct.counts, plain.distinct.counts)
    assert_eigenpairs(graph, split, atol=1e-12)
    assert split.report.reason.endswith("2 mirror symmetries split the problem")


def test_blocks_of_a_grid_are_a_quarter_each() -> None:
    graph, mirrors = grid(4, 6)
    assert [b.shape[1] for b in symmetric_bases(normalised_laplacian(graph), mirrors)] == [6] * 4
    assert symmetric_bases(normalised_laplacian(graph), [])[0].shape == (24, 24)


@pytest.mark.parametrize("k", [1, 3, (2, 2)])
def test_the_cut_does_not_change(k) -> None:
    graph, mirrors = grid(4, 4)
    plain, split = (decompose(graph, k=k, mirrors=which) for which in ((), mirrors))
    torch.testing.assert_close(split.eigenvalues, plain.eigenvalues)


@pytest.mark.parametrize("form", [list, tuple, torch.tensor])
def test_mirrors_of_any_kind(form) -> None:
    path = torch.tensor([[0, 1, 2], [1, 2, 3]])
    mirrored = decompose(path, mirrors=[form([3, 2, 1, 0])])
    assert "1 mirror symmetries" in mirrored.report.reason
    torch.testing.assert_close(mirrored.eigenvalues, torch.tensor([0.0, 0.5, 1.5, 2.0]))
    with pytest.raises(SpectrumError, match="a mirror changes the graph"):
        decompose(path, mirrors=[form([1, 0, 2, 3])])


def test_wrong_mirrors_are_refused() -> None:
    ring = closed_form("ring", 8)[0]
    i = np.arange(8)
    for mirror in ((i + 1) % 8, i[:5], np.zeros(8, int), i + 8):
        with pytest.raises(SpectrumError, match="a permutation of the 8 nodes and its own inverse"):
            decompose(ring, mirrors=[mirror])
    with pytest.raises(SpectrumError, match="must hold node numbers as integers, not float64"):
        decompose(ring, mirrors=[-i % 8 * 1.0])
    swapped = i.copy()
    swapped[[0, 3]] = 3, 0
    with pytest.raises(SpectrumError, match="a mirror changes the graph"):
        decompose(ring, mirrors=[swapped])
    with pytest.raises(SpectrumError, match="mirrors must commute"):
        decompose(ring, mirrors=[-i % 8, (1 - i) % 8])
    assert decompose(ring, mirrors=[-i % 8, (4 - i) % 8]).is_complete
