r"""Eigenpairs at either end by SLEPc over MPI, on the cores of one machine or of many.

The solve is a separate program (:mod:`.slepc_program`), which reads files and is started by
``mpirun``. Our process needs no MPI, and the program needs neither torch nor this package. It may
run under another Python, such as the system's with Debian's petsc4py and slepc4py.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files import write_json
from specformer.spectrum.eigenpairs import EQUAL_TOLERANCE
from specformer.spectrum.solvers import slepc_program
from specformer.spectrum.solvers.exact import known_vectors
from specformer.spectrum.solvers.problem import Problem, Progress

logger = logging.getLogger(__name__)

#: A rank with fewer rows than this makes a solve slower.
_ROWS = 1_000

#: OpenBLAS because Debian's plain BLAS takes three times as long (50 pairs of pubmed, two ranks).
PACKAGES = "python3-petsc4py python3-slepc4py openmpi-bin libopenblas0-serial"
#: Where Debian and Ubuntu keep the builds for real numbers, newest last, by the variables that name
#: them, unless the user has set these.
_DEBIAN = {"PETSC_DIR": "petscdir/petsc*/*-real", "SLEPC_DIR": "slepcdir/slepc*/*-real"}
_SYSTEM_PYTHON = "/usr/bin/python3"
_PROBE = "import slepc4py, petsc4py, numpy"
_MPI_TMPDIR = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")
#: How long mpirun may take to stop its ranks and remove its own folders; after us nobody waits.
_SECONDS_TO_END, _SECONDS_AFTER_US = 5.0, 30.0
#: A guard: once its standard input ends, the process that waits for the answer has died. It then
#: asks mpirun, the first of its group, to stop its ranks, and removes the folders. If ranks got the
#: signal too, mpirun might end before it has removed its own folder.
_GUARD = """
import os, shutil, signal, sys, time
group, seconds, *folders = sys.argv[1:]
os.read(0, 1)
end = time.monotonic() + float(seconds)
try:
    os.kill(int(group), signal.SIGTERM)
    while time.monotonic() < end:
        time.sleep(0.1)
        os.killpg(int(group), 0)
    os.killpg(int(group), signal.SIGKILL)
except ProcessLookupError:
    pass
for _ in range(50):  # a rank may still be writing
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    time.sleep(0.1)
"""
#: How many of mpirun's own lines are kept; its reason for stopping comes first.
_LINES = 50


def solve(problem: Problem) -> tuple[np.ndarray, Tensor]:
    """At least the pairs asked for, whole groups at both cuts.

    Returns eigenvalues ``[q]`` ascending and eigenvectors ``[n, q]``, float64, on the CPU.
    """
    with _run_ranks(problem) as folder:
        values, vectors = read_answer(folder)
    return values, torch.as_tensor(vectors)


def solve_into(
    out: Mapping[str, object], problem: Problem
) -> tuple[np.ndarray, list[dict[str, Any]], tuple[float, float]]:
    """As :func:`solve`, but every rank writes its rows into a folder and nothing is gathered.

    Returns eigenvalues, the shards for the index, and the largest errors of both checks. ``out``
    has the ``folder``, which all machines must share, the ``format`` and the bytes of a ``shard``,
    the ``dtype`` of its numbers and the ``tie`` of equally large entries.
    """
    if problem.ranks is not None and problem.ranks > problem.num_nodes:
        raise SpectrumError(
            f"ranks={problem.ranks}: a graph of {problem.num_nodes} nodes has fewer rows; lower "
            "ranks."
        )
    with _run_ranks(problem, out) as folder:
        answer = _read_report(folder)
        shards = [json.loads(path.read_text()) for path in sorted(folder.glob("shards-*.json"))]
        values = np.load(folder / "values.npy", allow_pickle=False)
    errors = answer["residual"], answer["orthogonality"]
    return values, list(itertools.chain.from_iterable(shards)), errors


@contextmanager
def _run_ranks(problem: Problem, out: Mapping[str, object] | None = None) -> Iterator[Path]:
    """Run the ranks; yield a temporary folder with their answer."""
    ranks = _default_ranks(problem.num_nodes) if problem.ranks is None else problem.ranks
    with tempfile.TemporaryDirectory(prefix="specformer-slepc-") as name:
        write_problem(Path(name), problem, ranks, out)
        launch([Path(name)], ranks, problem.hostfile, problem.progress)
        yield Path(name)


def write_problem(
    folder: Path, problem: Problem, ranks: int, out: Mapping[str, object] | None = None
) -> None:
    """Write what the ranks will read: the matrix, known null spaces, and the question."""
    n, laplacian = problem.num_nodes, problem.laplacian
    for part in ("indptr", "indices", "data"):
        np.save(folder / f"{part}.npy", getattr(laplacian, part))
    question: dict[str, object] = {"num_nodes": n, "ranks": ranks, "equal": EQUAL_TOLERANCE}
    question["out"] = out
    normalised = sp.csr_array(sp.eye_array(n, format="csr") - laplacian)
    for end, sign, count in (("lowest", 1, problem.lowest), ("highest", -1, problem.highest)):
        question[end] = count
        if count:
            known = known_vectors(normalised, sign, problem.degrees)
            question |= {f"known_{end}": known.count, f"complete_{end}": known.complete}
            np.save(folder / f"column-{end}.npy", known.column)
            np.save(folder / f"entry-{end}.npy", known.entry)
    write_json(folder / "problem.json", question)


def read_answer(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read and join what the ranks wrote."""
    answer = _read_report(folder)
    values = np.load(folder / "values.npy", allow_pickle=False)
    low = answer["lowest"]
    parts = [
        np.load(path, mmap_mode="r", allow_pickle=False)
        for path in sorted(folder.glob("vectors-*.npy"))
    ]
    vectors = np.empty((sum(len(part) for part in parts), len(values)))
    np.concatenate(parts, out=vectors)
    below, above = vectors[:, :low], vectors[:, low:]
    if below.size and above.size:
        # Each end is accurate by itself, but the two are not quite orthogonal if they come close.
        above -= below @ (below.T @ above)
        above /= np.linalg.norm(above, axis=0)
    return values, vectors


def _read_report(folder: Path) -> dict[str, Any]:
    """Read the first rank's report; raise an error if the ranks refused the problem."""
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    if answer["refused"]:
        raise SpectrumError(
            f"{answer['refused']}; ask for fewer eigenpairs, or use solver='dense'."
        )
    return answer


def _default_ranks(num_nodes: int) -> int:
    """As many ranks as the scheduler grants, or one per core; fewer for a small graph."""
    granted = os.environ.get("SLURM_NTASKS", "")
    if granted.isdecimal():
        cores = int(granted)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, num_nodes // _ROWS))


def launch(
    folders: Sequence[Path],
    ranks: int,
    hostfile: str | Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Run the program over these problems and wait for it.

    Lines of its ranks have a mark, those of mpirun do not.
    """
    command, environment = _command(ranks, hostfile)
    logger.debug("slepc: %s", " ".join(command))
    failures: list[str] = []
    others: list[str] = []
    with _running(command, list(map(str, folders)), environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            mark, _, rest = line.rstrip().partition(" ")
            kind, _, text = rest.partition(" ")
            if mark != slepc_program.MARK:
                others += [line.strip("-* \n")] if len(others) < _LINES else []
                logger.debug("slepc: %s", line.rstrip())
            elif kind == "error":
                failures.append(text)
            elif kind == "note":
                logger.info("slepc: %s", text)
            elif progress is not None:
                done, wanted = map(int, text.split())
                progress(done, wanted)
        status = process.wait()
    if failures:
        raise SpectrumError(f"SLEPc stopped: {failures[0]}.")
    if status != 0:
        # The reason is mpirun's paragraph on a signal if there is one, else its first.
        parts = [" ".join(part) for text, part in itertools.groupby(others, bool) if text]
        first = (parts or ["no reason given"])[0]
        reason = next((part for part in parts if "signal" in part), first).rstrip(".:")
        raise SpectrumError(f"mpirun ended with status {status}: {reason}.")


def find_python() -> tuple[str, dict[str, str]]:
    """The Python to run ranks with, and the environment variables it needs.

    That of ``SPECFORMER_MPI_PYTHON``, else this one, else the system's with Debian's packages.
    """
    named = os.environ.get("SPECFORMER_MPI_PYTHON")
    found = {name: sorted(Path("/usr/lib").glob(pattern)) for name, pattern in _DEBIAN.items()}
    debian = {
        name: str(folders[-1])
        for name, folders in found.items()
        if folders and name not in os.environ
    }
    for path in [named] if named else [sys.executable, _SYSTEM_PYTHON]:
        for variables in ({}, debian):
            if _has_slepc(path, variables):
                return path, variables
    if named:
        raise SpectrumError(
            f"SPECFORMER_MPI_PYTHON={named} is not a Python with numpy, petsc4py and slepc4py; "
            "correct it, or set PETSC_DIR and SLEPC_DIR if it needs these to find them."
        )
    raise SpectrumError(
        f"solver='slepc' needs petsc4py and slepc4py: install them (Debian: apt install "
        f"{PACKAGES}), or name a Python that has them in SPECFORMER_MPI_PYTHON, with PETSC_DIR and "
        "SLEPC_DIR set if it needs these to find them."
    )


def _has_slepc(path: str, variables: dict[str, str]) -> bool:
    command, environment = [path, "-c", _PROBE], _environment(path) | variables
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _environment(python: str) -> dict[str, str]:
    """Our environment, without variables that are meant for this Python only."""
    environment = dict(os.environ)
    if python != sys.executable:
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            environment.pop(name, None)
    return environment


def _command(ranks: int, hostfile: str | Path | None) -> tuple[list[str], dict[str, str]]:
    """The command to start, and its environment."""
    if ranks < 1:
        raise SpectrumError(f"ranks={ranks}: at least one MPI process is needed.")
    if hostfile is not None and not Path(hostfile).is_file():
        raise SpectrumError(f"hostfile {hostfile}: no such file.")
    named = os.environ.get("SPECFORMER_MPIRUN")
    starter = shutil.which(named) if named else shutil.which("mpirun") or shutil.which("mpiexec")
    if starter is None:
        missing = f"SPECFORMER_MPIRUN={named} is not a program" if named else "mpirun was not found"
        raise SpectrumError(
            f"{missing}: solver='slepc' needs an MPI; install one (Debian: apt install {PACKAGES}) "
            "or name its mpirun in SPECFORMER_MPIRUN."
        )
    python, needed = find_python()
    # Variables are passed through `env`, because each MPI has its own way to pass them on.
    variables = {"OMP_NUM_THREADS": "1", **needed}
    for name in ("PETSC_DIR", "SLEPC_DIR", "PETSC_OPTIONS"):
        if name in os.environ:
            variables[name] = os.environ[name]
    hosts = [] if hostfile is None else ["--hostfile", str(hostfile)]
    settings = [f"{name}={value}" for name, value in variables.items()]
    ranked = [python, str(Path(slepc_program.__file__).resolve())]
    scheduled = any(name in os.environ for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"))
    environment = _environment(python) | _mpi_settings(local=not hosts and not scheduled)
    return [starter, "-n", str(ranks), *hosts, "env", *settings, *ranked], environment


def _mpi_settings(*, local: bool) -> dict[str, str]:
    """Settings of Open MPI; other MPIs ignore them."""
    settings = {"OMPI_MCA_mpi_yield_when_idle": "1"}  # a waiting rank frees its core
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in most containers
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if local:
        # Without binding, two solves at a time do not share the same cores. There may be more ranks
        # than cores, because Open MPI counts only physical ones.
        return settings | {
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
    # Then TMPDIR is shared between machines; MPI's own temporary files must not be.
    return settings | dict.fromkeys(_MPI_TMPDIR, "/tmp")


@contextmanager
def _running(
    command: list[str], folders: list[str], environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start a process and end it when the block is left, also by an error, or if we are killed."""
    process = subprocess.Popen(
        [*command, *folders],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    watch = [sys.executable, "-I", "-S", "-c", _GUARD]
    guard = subprocess.Popen(
        [*watch, str(process.pid), str(_SECONDS_AFTER_US), *folders],
        stdin=subprocess.PIPE,  # never written to
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:  # ask mpirun to stop its ranks, and end it if it does not
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_END)
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        guard.kill()
        guard.wait()
        for stream in (guard.stdin, process.stdout):
            if stream is not None:
                stream.close()
