r"""Who is asked for eigenpairs, and who when that one gives up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import memory
from specformer.spectrum.distinct import EQUAL
from specformer.spectrum.solvers import dense, lanczos
from specformer.spectrum.solvers.chebyshev import chebyshev
from specformer.spectrum.solvers.slepc import slepc

logger = logging.getLogger(__name__)

Solver = Literal["auto", "dense", "lanczos", "chebyshev", "slepc"]
SOLVERS = ("dense", "lanczos", "chebyshev", "slepc")
#: ``auto`` goes dense below this many nodes whatever k is: it takes about a second.
_SMALL = 2_500
#: ``auto`` goes dense where it fits and more than one pair in this many nodes is wanted. On a GPU
#: products are cheaper: of 18,660 nodes 6,000 pairs take 2.0 seconds, and a dense solve 4.9.
_MANY = {"cpu": 4, "cuda": 3}
#: Memory that is worth a word before it is taken: all pairs of some 12,000 nodes on a CPU.
_MUCH = 4 * 2**30
#: Up to this many numbers in all eigenvectors wanted, ``chebyshev`` works in float64 whatever is
#: asked for: it takes seconds, and repeated eigenvalues agree to twelve digits.
_PRECISE = 2**23
#: Above this many nodes a GPU's dense solve runs in float32, unless float64 is asked for.
_LARGE = 25_000


@dataclass(frozen=True)
class Job:
    """What a solver may need to know."""

    laplacian: sp.csr_array
    degrees: np.ndarray
    lowest: int
    highest: int
    device: torch.device
    dtype: torch.dtype
    mirrors: Sequence[np.ndarray]
    start: tuple[np.ndarray, Tensor] | None
    ranks: int | None
    hostfile: str | Path | None
    progress: Callable[[int, int], None] | None
    state: Path | None

    @property
    def num_nodes(self) -> int:
        return int(self.laplacian.shape[0])

    @property
    def working_dtype(self) -> torch.dtype:
        """What ``chebyshev`` multiplies in."""
        small = self.num_nodes * (self.lowest + self.highest) <= _PRECISE
        return torch.float64 if small or self.dtype == torch.float64 else torch.float32

    @property
    def dense_dtype(self) -> torch.dtype:
        """What ``dense`` solves in: float32 only where that saves half a minute and is enough."""
        large = self.device.type == "cuda" and self.num_nodes > _LARGE and not self.mirrors
        return torch.float32 if large and self.dtype != torch.float64 else torch.float64

    def equal(self, solver: str) -> float:
        """How near two eigenvalues of one eigenspace come out."""
        worked_in = {"chebyshev": self.working_dtype, "dense": self.dense_dtype}
        return EQUAL[worked_in.get(solver, torch.float64)]


def answer(job: Job, solver: str) -> tuple[str, str, np.ndarray, Tensor]:
    """The name of the solver that succeeded, why it was asked, and what it found."""
    wanted = job.lowest + job.highest
    name, reason = choose(solver, job.num_nodes, wanted, job.device, job.dense_dtype)
    _announce(name, reason, job)
    while True:
        try:
            found = _ask(name, job)
            if name == "dense" and job.mirrors:
                reason += f"; {len(job.mirrors)} mirror symmetries split the problem"
            return name, reason, *found
        except SpectrumError as error:
            if name in ("dense", "slepc"):  # a missing MPI is told, not hidden behind dense
                raise
            following = _fallback(name, job)
            if following is None:
                refused = dense.refusal(job.num_nodes, job.device, job.dense_dtype)
                raise SpectrumError(f"{error} No way round it: {refused}.") from error
            name, reason = following, f"{name} gave up: {error}"
            logger.warning("solver %s: %s", name, reason)


def choose(
    solver: str,
    n: int,
    wanted: int,
    device: torch.device,
    dense_dtype: torch.dtype = torch.float64,
) -> tuple[str, str]:
    """A solver's name and why it was chosen."""
    if solver in SOLVERS:
        few = wanted < n // 2 and n > 64
        if solver != "dense" and not few:
            return "dense", f"{wanted} of {n} pairs are too many for solver {solver!r}"
        return solver, "as asked for"
    if solver != "auto":
        raise SpectrumError(f"unknown solver {solver!r}; choose auto, {', '.join(SOLVERS)}.")
    if n <= _SMALL:
        return "dense", f"{n:,} {'node is' if n == 1 else 'nodes are'} few"
    if wanted * _MANY.get(device.type, 4) <= n:
        return "chebyshev", f"{wanted:,} of {n:,} pairs are few enough for a block of vectors"
    refused = dense.refusal(n, device, dense_dtype)
    if refused:
        if wanted < n // 2:
            return "chebyshev", refused
        raise SpectrumError(f"{refused}; ask for fewer eigenpairs with k=….")
    return "dense", f"{wanted:,} of {n:,} pairs, and {n:,} nodes fit in memory"


def _announce(name: str, reason: str, job: Job) -> None:
    """Say who will solve and how much memory that takes, aloud if it is much."""
    need = _required_bytes(name, job)
    size = f"; about {memory.gib(need)} on {job.device}" if need >= _MUCH else ""
    logger.log(logging.WARNING if size else logging.INFO, "solver %s: %s%s", name, reason, size)


def _required_bytes(name: str, job: Job) -> int:
    """Peak memory of a solve, as far as it is known beforehand."""
    if name == "dense":
        return dense.required_bytes(job.num_nodes, job.device, job.dense_dtype)
    size = (job.num_nodes, job.lowest, job.highest, job.laplacian.nnz)
    if name == "chebyshev":
        return chebyshev.required_bytes(*size, job.working_dtype)
    return lanczos.required_bytes(*size) if name == "lanczos" else 0


def _ask(name: str, job: Job) -> tuple[np.ndarray, Tensor]:
    """Eigenvalues ascending and eigenvectors, at least those wanted."""
    if name == "lanczos":
        values, columns = lanczos.solve(job.laplacian, job.lowest, job.highest)
        return values, torch.as_tensor(np.ascontiguousarray(columns))
    if name == "slepc":
        values, columns = slepc.solve(
            job.laplacian,
            job.lowest,
            job.highest,
            degrees=job.degrees,
            ranks=job.ranks,
            hostfile=job.hostfile,
            progress=job.progress,
        )
        return values, torch.as_tensor(columns)
    if name == "chebyshev":
        return chebyshev.solve(
            job.laplacian,
            job.lowest,
            job.highest,
            job.device,
            dtype=job.working_dtype,
            degrees=job.degrees,
            start=job.start,
            progress=job.progress,
            state=job.state,
        )
    return dense.solve(job.laplacian, job.device, job.mirrors, job.dense_dtype)


def _fallback(name: str, job: Job) -> str | None:
    """Whom to ask when a solver gave up: LAPACK where it fits, else the other iterative one."""
    if dense.refusal(job.num_nodes, job.device, job.dense_dtype) is None:
        return "dense"
    size = (job.num_nodes, job.lowest, job.highest, job.laplacian.nnz)
    if name == "lanczos" and not chebyshev.refusal(*size, job.working_dtype, job.device):
        return "chebyshev"
    return None
