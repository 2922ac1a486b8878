r"""Which solver is asked for eigenpairs, and which one if it gives up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.eigenpairs import EQUAL
from specformer.spectrum.solvers import Progress, dense, lanczos, slepc
from specformer.spectrum.solvers.chebyshev import chebyshev

logger = logging.getLogger(__name__)

Solver = Literal["auto", "dense", "lanczos", "chebyshev", "slepc"]
SOLVERS = ("dense", "lanczos", "chebyshev", "slepc")
#: ``auto`` goes dense below this many nodes whatever k is: it takes about a second.
_SMALL = 2_500
#: ``auto`` goes dense where it fits and more than one pair in this many nodes is wanted. On a GPU
#: products are cheaper: of 18,660 nodes 6,000 pairs take 2.0 seconds, and a dense solve 4.9.
_MANY = {"cpu": 4, "cuda": 3}
#: A solve that needs more memory than this is announced: all pairs of 12,000 nodes on a CPU.
_MUCH = 4 * 2**30
#: Up to this many numbers in all eigenvectors, ``chebyshev`` always works in float64: it takes
#: seconds, and repeated eigenvalues agree to twelve digits.
_PRECISE = 2**23
#: Above this many nodes a GPU's dense solve runs in float32, unless float64 is asked for.
_LARGE = 25_000


@dataclass(frozen=True)
class Problem:
    """Everything that a solver may need."""

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
    progress: Progress | None
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
        """Largest distance of two eigenvalues that count as equal."""
        worked_in = {"chebyshev": self.working_dtype, "dense": self.dense_dtype}
        return EQUAL[worked_in.get(solver, torch.float64)]


def answer(problem: Problem, solver: str) -> tuple[str, str, np.ndarray, Tensor]:
    """The solver that succeeded, the reason it was chosen, and what it found."""
    asked = wanted = problem.lowest + problem.highest
    if solver in ("auto", "lanczos", "chebyshev"):
        least = least_pairs(problem.laplacian, max(problem.lowest, problem.highest))
        wanted = max(asked, least)
    if wanted > asked and wanted >= problem.num_nodes // 2:
        refused = dense.refusal(problem.num_nodes, problem.device, problem.dense_dtype)
        if refused:
            raise SpectrumError(
                f"with {asked:,} eigenpairs all copies of the eigenvalue 1 come along, {wanted:,} "
                f"pairs at least, and {refused}; up to k={problem.num_nodes - wanted} come without."
            )
    name, reason = choose(solver, problem.num_nodes, wanted, problem.device, problem.dense_dtype)
    _announce(name, reason, problem)
    if problem.start is not None and name != "chebyshev":
        logger.warning("solver %s begins anew: only chebyshev uses the earlier spectrum", name)
    while True:
        try:
            found = _ask(name, problem)
            if name == "dense" and problem.mirrors:
                reason += f"; {len(problem.mirrors)} mirror symmetries split the problem"
            return name, reason, *found
        except SpectrumError as error:
            if name in ("dense", "slepc"):  # a missing MPI is an error, not a reason for dense
                raise
            following = _fallback(name, problem)
            if following is None:
                refused = dense.refusal(problem.num_nodes, problem.device, problem.dense_dtype)
                raise SpectrumError(f"{error} No other solver can take over: {refused}.") from error
            name, reason = following, f"{name} gave up: {error}"
            logger.warning("solver %s: %s", name, reason)


def least_pairs(laplacian: sp.csr_array, count: int) -> int:
    """How many pairs come along at least, if ``count`` are asked for at one end: 0 if unknown.

    On nodes without edges among themselves I − L is zero. By Cauchy's interlacing, with c other
    nodes, at most c eigenvalues lie on either side of 1. More than c pairs then include all its
    copies, so that at least n − c come along. Of a star with its many leaves c is 1.
    """
    edges = sp.coo_array(sp.eye_array(laplacian.shape[0]) - laplacian)
    edges.eliminate_zeros()
    num_nodes, (rows, columns) = laplacian.shape[0], edges.coords
    # Nodes before all of their neighbours, by degree, have no edges among themselves.
    order = np.empty(num_nodes, dtype=np.int64)
    order[np.argsort(np.bincount(rows, minlength=num_nodes), kind="stable")] = np.arange(num_nodes)
    others = len(np.unique(rows[order[columns] <= order[rows]]))
    return num_nodes - others if count > others else 0


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


def _announce(name: str, reason: str, problem: Problem) -> None:
    """Log the chosen solver and its peak memory as far as it is known; as a warning if much."""
    size = (problem.num_nodes, problem.lowest, problem.highest, problem.laplacian.nnz)
    if name == "dense":
        need = dense.required_bytes(problem.num_nodes, problem.device, problem.dense_dtype)
    elif name == "chebyshev":
        need = chebyshev.required_bytes(*size, problem.working_dtype)
    else:
        need = lanczos.required_bytes(*size) if name == "lanczos" else 0
    told = f"; about {devices.gib(need)} on {problem.device}" if need >= _MUCH else ""
    logger.log(logging.WARNING if told else logging.INFO, "solver %s: %s%s", name, reason, told)


def _ask(name: str, problem: Problem) -> tuple[np.ndarray, Tensor]:
    """Eigenvalues ascending and eigenvectors, at least those wanted."""
    if name == "dense":
        return dense.solve(problem.laplacian, problem.device, problem.mirrors, problem.dense_dtype)
    wanted = (problem.laplacian, problem.lowest, problem.highest)
    if name == "lanczos":
        values, columns = lanczos.solve(*wanted)
        return values, torch.as_tensor(np.ascontiguousarray(columns))
    told: dict[str, Any] = {"degrees": problem.degrees, "progress": problem.progress}
    if name == "slepc":
        values, columns = slepc.solve(
            *wanted, ranks=problem.ranks, hostfile=problem.hostfile, **told
        )
        return values, torch.as_tensor(columns)
    return chebyshev.solve(
        *wanted,
        problem.device,
        dtype=problem.working_dtype,
        start=problem.start,
        state=problem.state,
        **told,
    )


def _fallback(name: str, problem: Problem) -> str | None:
    """The solver to try after one gave up: dense if it fits, else the other iterative one."""
    if dense.refusal(problem.num_nodes, problem.device, problem.dense_dtype) is None:
        return "dense"
    size = (problem.num_nodes, problem.lowest, problem.highest, problem.laplacian.nnz)
    if name == "lanczos" and not chebyshev.refusal(*size, problem.working_dtype, problem.device):
        return "chebyshev"
    return None
