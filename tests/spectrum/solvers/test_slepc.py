"""SLEPc over MPI: the contract on two ranks, Cora, and setups that cannot work."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import (
    CLOSED_FORMS,
    Array,
    adjacency,
    closed_form,
    hypercube,
    random_weighted,
    union,
)
from tests.spectrum.solvers.solver_contract import GRAPHS, SolverContract

from specformer.errors import SpectrumError
from specformer.graphs import as_adjacency, normalised_laplacian
from specformer.spectrum import Spectrum, decompose
from specformer.spectrum.eigenpairs import max_orthogonality_error, max_residual
from specformer.spectrum.solvers import dense, slepc, slepc_program
from specformer.spectrum.solvers.problem import Problem

SIZE = 120
RING = normalised_laplacian(closed_form("ring", SIZE)[0])


@pytest.fixture(scope="module")
def mpi() -> None:
    """The Python that has SLEPc; without one, or without mpirun, a test is skipped."""
    try:
        slepc._command(1, None)
    except SpectrumError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go in this test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def key(laplacian: sp.csr_array, lowest: int, highest: int) -> str:
    content = [laplacian.indptr.tobytes(), laplacian.indices.tobytes(), laplacian.data.tobytes()]
    return hashlib.sha256(b"".join(content) + f"{lowest} {highest}".encode()).hexdigest()[:16]


def contract_problems() -> Iterator[tuple[sp.csr_array, int, int]]:
    """What the contract asks for; a question missing here is answered by a launch of its own."""
    for graph, asks in GRAPHS.values():
        laplacian = normalised_laplacian(adjacency(graph()))
        yield from ((laplacian, *ask) for ask in asks)
    for kind in CLOSED_FORMS:
        laplacian = normalised_laplacian(closed_form(kind, SIZE)[0])
        yield from ((laplacian, *ask) for ask in [(1, 0), (1, 1), (2, 0)])
    yield normalised_laplacian(hypercube(7)[0]), 9, 0


@pytest.fixture(scope="module")
def answers(mpi: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with answers to the whole contract, from one launch instead of sixty."""
    root = tmp_path_factory.mktemp("answers")
    for problem in contract_problems():
        folder = root / key(*problem)
        if not folder.exists():
            folder.mkdir()
            slepc.write_problem(folder, Problem(*problem), ranks=2)
    slepc.launch(sorted(root.iterdir()), ranks=2)
    return root


class TestSlepc(SolverContract):
    size = SIZE

    @pytest.fixture(autouse=True)
    def _answers(self, answers: Path) -> None:
        self.answers = answers

    def solve(
        self, laplacian: sp.csr_array, lowest: int, highest: int
    ) -> tuple[Array, torch.Tensor]:
        folder = self.answers / key(laplacian, lowest, highest)
        if folder.exists():
            values, vectors = slepc.read_answer(folder)
            return values, torch.as_tensor(vectors)
        return slepc.solve(Problem(laplacian, lowest, highest, ranks=2))


def test_two_ranks_equal_the_dense_solver_on_cora(
    mpi: None, shared_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = as_adjacency(shared_data / "cora.npz")
    laplacian = normalised_laplacian(graph)
    exact, _ = dense.solve(Problem(laplacian, 1, 0))
    heard: list[tuple[int, int]] = []
    with caplog.at_level(logging.INFO, "specformer"):
        problem = Problem(
            laplacian,
            120,
            40,
            degrees=graph.sum(axis=1),
            ranks=2,
            progress=lambda *counts: heard.append(counts),
        )
        values, vectors = slepc.solve(problem)
    assert "on 2 ranks" in caplog.text
    low = int((values < 1.0).sum())
    assert low >= 120
    assert len(values) - low >= 40
    np.testing.assert_allclose(values[:low], exact[:low], rtol=0, atol=1e-6)
    np.testing.assert_allclose(values[low:], exact[low - len(values) :], rtol=0, atol=1e-6)
    assert max_residual(laplacian, torch.as_tensor(values), vectors) < 1e-9
    assert max_orthogonality_error(vectors) < 1e-9
    assert heard
    assert all(0 <= done <= wanted == 160 for done, wanted in heard)


def test_ranks_and_hostfile_do_not_change_the_spectrum(
    mpi: None, tmp_path: Path, scratch: Path
) -> None:
    graph = adjacency(union(random_weighted(150, seed=4), nx.star_graph(9), nx.star_graph(9)))
    laplacian, degrees = normalised_laplacian(graph), np.asarray(graph.sum(axis=1))
    hostfile = tmp_path / "hosts"
    hostfile.write_text("localhost slots=2\n", encoding="ascii")
    alone, _ = slepc.solve(Problem(laplacian, 12, 6, degrees=degrees, ranks=1))
    both, vectors = slepc.solve(Problem(laplacian, 12, 6, ranks=2, hostfile=hostfile))
    np.testing.assert_allclose(alone, both, atol=1e-10)
    assert max_residual(laplacian, torch.as_tensor(both), vectors) < 1e-9
    assert not list(scratch.iterdir())


def two_tori() -> tuple[sp.csr_array, Array]:
    """Every eigenvalue is repeated, at both ends, and some at 0 and 2 are known beforehand."""
    sides = (30, 40)
    one, other = (1 - np.cos(2 * np.pi * np.arange(side) / side) for side in sides)
    torus = nx.grid_2d_graph(*sides, periodic=True)
    return adjacency(union(torus, torus)), np.sort(np.tile(np.add.outer(one, other).ravel() / 2, 2))


def clusters() -> tuple[sp.csr_array, Array]:
    """Twenty small eigenvalues and then a gap: a filter is not of use for those beyond it."""
    graph = nx.random_partition_graph([100] * 20, 0.3, 0.0005, seed=0)
    return adjacency(graph), np.linalg.eigvalsh(normalised_laplacian(adjacency(graph)).toarray())


@pytest.mark.parametrize(
    ("graph", "ends"),
    [(two_tori, (30, 11)), (clusters, (20, 0)), (clusters, (24, 3))],
    ids=["repeated", "before the gap", "beyond the gap"],
)
def test_filtered_pairs_are_all_there(
    mpi: None,
    graph: Callable[[], tuple[sp.csr_array, Array]],
    ends: tuple[int, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    matrix, exact = graph()
    laplacian = normalised_laplacian(matrix)
    with caplog.at_level(logging.INFO, "specformer"):
        degrees = np.asarray(matrix.sum(axis=1))
        values, vectors = slepc.solve(Problem(laplacian, *ends, degrees=degrees, ranks=2))
    assert "products a step" in caplog.text
    low = int((values < 1.0).sum())
    assert low >= ends[0]
    assert len(values) - low >= ends[1]
    np.testing.assert_allclose(values[:low], exact[:low], rtol=0, atol=1e-10)
    np.testing.assert_allclose(values[low:], exact[len(exact) - len(values) + low :], atol=1e-10)
    assert max_residual(laplacian, torch.as_tensor(values), vectors) < 1e-10
    assert max_orthogonality_error(vectors) < 1e-9


class TestBadSetups:
    """Each ends with one sentence that names the fix, and leaves nothing behind."""

    @pytest.fixture(autouse=True)
    def _scratch(self, scratch: Path) -> Iterator[None]:
        yield
        assert not list(scratch.iterdir())

    def test_no_mpirun(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("SPECFORMER_MPIRUN", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(
            SpectrumError, match=r"mpirun was not found: .* apt install .*openmpi-bin"
        ):
            slepc.solve(Problem(RING, 3, 0))

    def test_another_mpirun_that_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPECFORMER_MPIRUN", "no-such-mpirun")
        with pytest.raises(
            SpectrumError, match="SPECFORMER_MPIRUN=no-such-mpirun is not a program"
        ):
            slepc.solve(Problem(RING, 3, 0))

    def test_a_named_python_without_slepc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPECFORMER_MPIRUN", sys.executable)
        monkeypatch.setenv("SPECFORMER_MPI_PYTHON", "/no/python")
        with pytest.raises(
            SpectrumError, match=r"MPI_PYTHON=/no/python is not a Python .*PETSC_DIR"
        ):
            slepc.solve(Problem(RING, 3, 0))

    def test_no_slepc_anywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPECFORMER_MPIRUN", sys.executable)
        monkeypatch.delenv("SPECFORMER_MPI_PYTHON", raising=False)
        monkeypatch.setenv("PETSC_DIR", "/no/petsc")
        monkeypatch.setenv("SLEPC_DIR", "/no/slepc")
        monkeypatch.setattr(slepc, "_SYSTEM_PYTHON", "/no/python")
        monkeypatch.setattr(sys, "executable", "/no/python either")
        with pytest.raises(SpectrumError, match=r"apt install python3-petsc4py .*MPI_PYTHON"):
            slepc.solve(Problem(RING, 3, 0))

    def test_no_hostfile(self) -> None:
        with pytest.raises(SpectrumError, match=r"hostfile nowhere\.txt: no such file"):
            slepc.solve(Problem(RING, 3, 0, hostfile="nowhere.txt"))

    def test_no_ranks(self) -> None:
        with pytest.raises(SpectrumError, match="ranks=0: at least one"):
            slepc.solve(Problem(RING, 3, 0, ranks=0))

    def test_a_hostfile_with_too_few_slots(self, mpi: None, tmp_path: Path) -> None:
        hostfile = tmp_path / "hosts"
        hostfile.write_text("localhost slots=1\n", encoding="ascii")
        with pytest.raises(
            SpectrumError, match=r"^mpirun ended with status \d+: There are not enough slots"
        ):
            slepc.solve(Problem(RING, 3, 0, ranks=2, hostfile=hostfile))

    def test_an_mpirun_of_another_mpi(
        self, mpi: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It starts processes that find themselves alone, as this script does."""
        starter = tmp_path / "mpirun"
        starter.write_text('#!/bin/sh\nshift 2\nexec "$@"\n', encoding="ascii")
        starter.chmod(0o755)
        monkeypatch.setenv("SPECFORMER_MPIRUN", str(starter))
        with pytest.raises(SpectrumError, match=r"2 ranks were started, but .* SPECFORMER_MPIRUN"):
            slepc.solve(Problem(RING, 3, 0, ranks=2))

    def test_machines_that_do_not_share_the_folder(self, mpi: None, tmp_path: Path) -> None:
        with pytest.raises(SpectrumError, match=r"elsewhere: .* set TMPDIR to a folder that all"):
            slepc.launch([tmp_path / "elsewhere"], ranks=2)

    def test_an_eigenvalue_repeated_too_often(self, mpi: None) -> None:
        laplacian = normalised_laplacian(closed_form("star", SIZE)[0])
        with pytest.raises(
            SpectrumError, match=r"repeated too often: .* more than half of the 120"
        ):
            slepc.solve(Problem(laplacian, 2, 0, ranks=1))


def children(pid: int) -> list[int]:
    """Processes below this one, the deepest last."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    direct = [child for child, parent in parents if parent == pid]
    return direct + [below for child in direct for below in children(child)]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]


#: Large enough to be at work for seconds after its first progress is heard.
SLOW = normalised_laplacian(adjacency(nx.grid_2d_graph(100, 100)))


def test_a_killed_rank_is_one_sentence(mpi: None, scratch: Path) -> None:
    killed: list[int] = []

    def kill(done: int, wanted: int) -> None:
        if not killed:  # more progress may be on its way when the rank is gone
            killed.append(children(os.getpid())[-1])
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(SpectrumError, match=r"^mpirun ended with status \d+: .* signal 9 "):
        slepc.solve(Problem(SLOW, 200, 0, ranks=2, progress=kill))
    assert not list(scratch.iterdir())


def test_an_interrupted_solve_leaves_nothing(mpi: None, scratch: Path) -> None:
    ranks: list[int] = []
    others = children(os.getpid())  # earlier tests may have left helpers of multiprocessing

    def interrupt(done: int, wanted: int) -> None:
        ranks.extend(set(children(os.getpid())) - set(others))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        slepc.solve(Problem(SLOW, 200, 0, ranks=2, progress=interrupt))
    assert len(ranks) >= 3  # mpirun and two ranks
    assert not set(ranks) & set(children(os.getpid()))
    assert not list(scratch.iterdir())


def test_a_process_that_dies_takes_its_ranks_along(
    mpi: None, tmp_path: Path, scratch: Path
) -> None:
    sp.save_npz(tmp_path / "laplacian.npz", SLOW)
    code = (
        "import scipy.sparse as sp; from specformer.spectrum.solvers import slepc; "
        "from specformer.spectrum.solvers.problem import Problem; "
        f"laplacian = sp.csr_array(sp.load_npz({str(tmp_path / 'laplacian.npz')!r})); "
        "slepc.solve(Problem(laplacian, 200, 0, ranks=2, "
        "progress=lambda *counts: print(*counts, flush=True)))"
    )
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()  # the ranks are at work
        ranks = children(parent.pid)
        parent.kill()
    assert len(ranks) >= 3
    deadline = time.monotonic() + 60
    while alive(ranks) or list(scratch.iterdir()):
        assert time.monotonic() < deadline, (alive(ranks), list(scratch.iterdir()))
        time.sleep(0.1)


def test_the_program_needs_nothing_of_ours() -> None:
    """It is imported by a Python that has neither torch nor this package."""
    code = f"import runpy, sys; runpy.run_path({slepc_program.__file__!r}); print(*sys.modules)"
    isolated = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"torch", "scipy", "specformer"} & set(isolated.stdout.split())


@pytest.mark.usefixtures("mpi")
def test_ranks_write_their_own_rows(scratch: Path, tmp_path: Path) -> None:
    """Shards of three ranks are what one process gathers, to the bit; the cache finds them."""
    graph, k, out, cache = (
        random_weighted(150, seed=3),
        (9, 6),
        tmp_path / "out",
        tmp_path / "cache",
    )
    whole = decompose(graph, k=k, solver="slepc", ranks=3)
    told = decompose(graph, k=k, solver="slepc", ranks=3, out=out, cache=cache, nodes=slice(0, 0))
    assert told.eigenvectors.shape == (0, whole.num_eigenpairs)
    assert not list(scratch.iterdir())
    assert len(list(out.glob("rows-*.safetensors"))) == 3
    found = Spectrum.load(out)
    assert torch.equal(found.eigenvalues, whole.eigenvalues)
    assert torch.equal(found.eigenvectors, whole.eigenvectors)
    for error in ("max_residual", "max_orthogonality_error"):
        assert getattr(found.report, error) == pytest.approx(getattr(whole.report, error), rel=0.9)
    part = decompose(graph, k=k, cache=cache, nodes=slice(40, 110))  # over two ranks' rows
    assert torch.equal(part.eigenvectors, whole.eigenvectors[40:110])
    # Another spectrum in the same folder is not taken for the first.
    decompose(graph, k=4, solver="slepc", ranks=2, out=out)
    assert torch.equal(decompose(graph, k=k, cache=cache).eigenvectors, whole.eigenvectors)
    shard = next(out.glob("rows-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(SpectrumError, match="checksum differs"):
        Spectrum.load(out)
