"""LAPACK: the contract, and memory asked for before it is taken."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import SMALL, Array, closed_form
from tests.spectrum.solvers.solver_contract import SolverContract

from specformer.errors import SpectrumError
from specformer.files.host_memory import _installed_bytes
from specformer.graphs import normalised_laplacian
from specformer.spectrum import memory
from specformer.spectrum.eigenpairs import max_residual
from specformer.spectrum.solvers import dense

CPU = torch.device("cpu")


class TestDense(SolverContract):
    size = 12
    accuracy = 1e-12

    def solve(
        self, laplacian: sp.csr_array, lowest: int, highest: int
    ) -> tuple[Array, torch.Tensor]:
        return dense.solve(laplacian, CPU)

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
    values, vectors = dense.solve(laplacian, CPU, dtype=torch.float32)
    assert vectors.dtype == torch.float32
    np.testing.assert_allclose(values, exact, atol=1e-8)
    plain = torch.linalg.eigvalsh(torch.tensor(laplacian.toarray()).float()).double().numpy()
    assert np.abs(plain - exact).max() > 1e-8
    assert max_residual(laplacian, torch.tensor(values).float(), vectors) < 1e-5
    assert dense.required_bytes(1000, CPU, torch.float32) == 16_000_000


def test_memory_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 3 * 2**30)
    message = "a dense decomposition of 20,000 nodes needs about 11.9 GiB on cpu, 3.0 GiB are free"
    assert dense.refusal(20_000, CPU) == message
    assert dense.refusal(5_000, CPU) is None
    monkeypatch.setattr(memory, "available_bytes", lambda device: 1000)
    with pytest.raises(SpectrumError, match=r"needs about 0\.0 GiB.*with solver='chebyshev'"):
        dense.solve(normalised_laplacian(SMALL["grid"]), CPU)


def test_more_nodes_than_lapack_counts_are_refused() -> None:
    assert dense.refusal(32_701, CPU) == (
        "LAPACK on the CPU takes at most 32,700 nodes, the graph has 32,701 and would need about "
        "31.9 GiB"
    )


@pytest.mark.parametrize(
    ("num_nodes", "dtype", "gigabytes"),
    [(41_554, torch.float32, 38.7), (18_660, torch.float64, 16.0)],  # docs/spectra.md, on an H200
    ids=str,
)
def test_a_gpu_needs_what_was_measured(
    num_nodes: int, dtype: torch.dtype, gigabytes: float
) -> None:
    need = dense.required_bytes(num_nodes, torch.device("cuda"), dtype)
    assert need / 2**30 == pytest.approx(gigabytes, rel=0.05)


def test_memory_is_known() -> None:
    assert dense.required_bytes(1000, CPU) == 32_000_000
    assert 2**20 < memory.available_bytes(CPU) < 2**50
    assert _installed_bytes() >= memory.available_bytes(CPU)
