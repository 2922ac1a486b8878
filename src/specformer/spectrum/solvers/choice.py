"""Choose a solver, and another one if it gives up."""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum.solvers import dense, lanczos, slepc
from specformer.spectrum.solvers.chebyshev import chebyshev
from specformer.spectrum.solvers.problem import Problem

logger = logging.getLogger(__name__)

Solver = Literal["auto", "dense", "lanczos", "chebyshev", "slepc"]
#: Modules by name; each has a function ``solve``.
SOLVERS = {"dense": dense, "lanczos": lanczos, "chebyshev": chebyshev, "slepc": slepc}
#: Up to this many nodes ``auto`` solves densely for any k: it takes about a second.
_SMALL = 2_500
#: ``auto`` solves densely if there is memory and more than one pair per this many nodes is wanted.
#: On a GPU products are cheaper: 6,000 pairs of 18,660 nodes take 2.0 seconds, a dense solve 4.9.
_MANY = {"cpu": 4, "cuda": 3}
#: A solve that needs more memory than this gives a warning: all pairs of 12,000 nodes on a CPU.
_MUCH = 4 * 2**30


def solve(problem: Problem, solver: str) -> tuple[str, str, np.ndarray, Tensor]:
    """Solve; returns the solver that succeeded, why it was chosen, eigenvalues and eigenvectors."""
    asked = wanted = problem.num_pairs
    large = solver == "auto" and problem.num_nodes > _SMALL
    if asked < problem.num_nodes and (large or solver in ("lanczos", "chebyshev")):
        least = least_pairs(problem.laplacian, max(problem.lowest, problem.highest))
        wanted = max(asked, least)
    comes_along = wanted > asked and wanted >= problem.num_nodes // 2
    if comes_along and (refused := _dense_refusal(problem)):
        raise SpectrumError(
            f"{asked:,} eigenpairs include all copies of the eigenvalue 1, {wanted:,} pairs at "
            f"least, and {refused}; ask for at most k={problem.num_nodes - wanted} to avoid them."
        )
    name, reason = choose(solver, problem, wanted)
    _announce(name, reason, problem)
    if problem.start is not None and name != "chebyshev":
        logger.warning("solver %s ignores the earlier spectrum: only chebyshev uses it", name)
    while True:
        try:
            found = SOLVERS[name].solve(problem)
            if name == "dense" and problem.mirrors:
                reason += f"; {len(problem.mirrors)} mirror symmetries split the problem"
            return name, reason, *found
        except SpectrumError as error:
            if name in ("dense", "slepc"):  # a missing MPI is an error, not a reason for dense
                raise
            reason = f"{name} gave up: {error}"
            if (refused := _dense_refusal(problem)) is None:
                name = "dense"
            elif name == "lanczos" and not chebyshev.refusal(problem):
                name = "chebyshev"
            else:
                raise SpectrumError(
                    f"{reason} No other solver can take over: {refused}."
                ) from error
            logger.warning("solver %s: %s", name, reason)


def least_pairs(laplacian: sp.csr_array, count: int) -> int:
    """A lower bound of the pairs that ``count`` pairs at one end include; 0 if unknown.

    On nodes without edges among themselves I − L is zero. By Cauchy's interlacing, with c other
    nodes, at most c eigenvalues lie on either side of 1. So more than c pairs include all copies of
    1, at least n − c pairs. For a star with its many leaves c is 1.
    """
    edges = sp.coo_array(sp.eye_array(laplacian.shape[0]) - laplacian)
    edges.eliminate_zeros()
    num_nodes, (rows, columns) = laplacian.shape[0], edges.coords
    # Nodes that come before all their neighbours, by degree, have no edges among themselves.
    order = np.empty(num_nodes, dtype=np.int64)
    order[np.argsort(np.bincount(rows, minlength=num_nodes), kind="stable")] = np.arange(num_nodes)
    others = len(np.unique(rows[order[columns] <= order[rows]]))
    return num_nodes - others if count > others else 0


def choose(solver: str, problem: Problem, wanted: int) -> tuple[str, str]:
    """The name of the solver for ``wanted`` pairs, and why it was chosen."""
    n = problem.num_nodes
    if solver in SOLVERS:
        few = wanted < n // 2 and n > 64
        if solver != "dense" and not few:
            return "dense", f"{wanted} of {n} pairs are too many for solver {solver!r}"
        return solver, "as asked for"
    if solver != "auto":
        raise SpectrumError(f"unknown solver {solver!r}; choose auto, {', '.join(SOLVERS)}.")
    if n <= _SMALL:
        return "dense", f"{n:,} {'node is' if n == 1 else 'nodes are'} few"
    if wanted * _MANY.get(problem.device.type, 4) <= n:
        return "chebyshev", f"{wanted:,} of {n:,} pairs are few enough for a block of vectors"
    refused = _dense_refusal(problem)
    if not refused:
        return "dense", f"{wanted:,} of {n:,} pairs, and {n:,} nodes fit in memory"
    if wanted < n // 2:
        return "chebyshev", refused
    raise SpectrumError(f"{refused}; ask for fewer eigenpairs with k=….")


def _dense_refusal(problem: Problem) -> str | None:
    return dense.refusal(problem.num_nodes, problem.device, problem.dense_dtype)


def _announce(name: str, reason: str, problem: Problem) -> None:
    """Log the chosen solver and its peak memory if that is known; as a warning if it is much."""
    need = 0
    if name == "dense":
        need = dense.required_bytes(problem.num_nodes, problem.device, problem.dense_dtype)
    elif name != "slepc":
        need = (chebyshev if name == "chebyshev" else lanczos).required_bytes(problem)
    told = f"; about {devices.gib(need)} on {problem.device}" if need >= _MUCH else ""
    logger.log(logging.WARNING if told else logging.INFO, "solver %s: %s%s", name, reason, told)
