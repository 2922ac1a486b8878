r"""Eigenpairs at either end by SLEPc over MPI, on the cores of one machine or of many.

The solve is a program of its own (:mod:`.program`), fed by files and started by ``mpirun``
(:mod:`.launch`). Our process needs no MPI, and the program needs neither torch nor this package.
It may run under another Python, such as the system's, which has Debian's petsc4py and slepc4py.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from specformer.errors import SpectrumError
from specformer.files import write_json
from specformer.spectrum.distinct import EQUAL_TOLERANCE
from specformer.spectrum.solvers import Progress
from specformer.spectrum.solvers.exact import known_vectors
from specformer.spectrum.solvers.slepc.launch import launch

#: A rank with fewer rows than this makes a solve slower.
_ROWS = 1_000


def solve(
    laplacian: sp.csr_array,
    lowest: int,
    highest: int,
    *,
    degrees: np.ndarray | None = None,
    ranks: int | None = None,
    hostfile: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """At least the ``lowest`` smallest and ``highest`` largest pairs, whole groups at both cuts.

    Args:
        laplacian: normalised Laplacian ``[n, n]``.
        lowest: how many pairs from the low end.
        highest: how many from the high end.
        degrees: the nodes' degrees; needed for exact null spaces of weighted graphs.
        ranks: MPI processes; by default one per core, or as many as the cluster's scheduler grants.
        hostfile: machines to run on, in the format of ``mpirun``. They must share the folder for
            temporary files (``TMPDIR``).
        progress: called with the pairs converged and wanted.

    Returns:
        Eigenvalues ``[q]`` ascending and eigenvectors ``[n, q]``, float64.
    """
    ranks = _default_ranks(laplacian.shape[0]) if ranks is None else ranks
    with tempfile.TemporaryDirectory(prefix="specformer-slepc-") as name:
        folder = Path(name)
        write_problem(folder, laplacian, lowest, highest, degrees, ranks)
        launch([folder], ranks, hostfile, progress)
        return read_answer(folder)


def write_problem(
    folder: Path,
    laplacian: sp.csr_array,
    lowest: int,
    highest: int,
    degrees: np.ndarray | None = None,
    ranks: int = 1,
) -> None:
    """Write what the ranks will read: the matrix, null spaces known beforehand, the question."""
    n = laplacian.shape[0]
    if lowest + highest >= n // 2:
        raise SpectrumError(
            f"{lowest + highest:,} of {n:,} eigenpairs are too many for solver='slepc'."
        )
    for part in ("indptr", "indices", "data"):
        np.save(folder / f"{part}.npy", getattr(laplacian, part))
    problem: dict[str, object] = {"num_nodes": n, "ranks": ranks}
    problem["equal"] = EQUAL_TOLERANCE
    normalised = sp.csr_array(sp.eye_array(n, format="csr") - laplacian)
    for end, sign, count in (("lowest", 1, lowest), ("highest", -1, highest)):
        problem[end] = count
        if count:
            known = known_vectors(normalised, sign, degrees)
            problem |= {f"known_{end}": known.count, f"complete_{end}": known.complete}
            np.save(folder / f"column-{end}.npy", known.column)
            np.save(folder / f"entry-{end}.npy", known.entry)
    write_json(folder / "problem.json", problem)


def read_answer(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read and join what the ranks wrote."""
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    if answer["refused"]:
        raise SpectrumError(
            f"{answer['refused']}; ask for fewer eigenpairs, or use solver='dense'."
        )
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


def _default_ranks(num_nodes: int) -> int:
    """As many as the scheduler grants or we have cores, unless the graph is small."""
    granted = os.environ.get("SLURM_NTASKS", "")
    if granted.isdecimal():
        cores = int(granted)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, num_nodes // _ROWS))
