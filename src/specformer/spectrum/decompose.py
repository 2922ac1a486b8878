r"""From a graph to its :class:`Spectrum`: choose a solver, solve, check, cache."""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files import make_folder
from specformer.graphs import as_adjacency, normalised_laplacian
from specformer.spectrum import cache as spectrum_cache
from specformer.spectrum.checks import TOLERANCE, max_orthogonality_error, max_residual
from specformer.spectrum.distinct import group_starts, snap
from specformer.spectrum.signal_checks import check_precision
from specformer.spectrum.solvers import chebyshev, dense, lanczos, slepc, subspace
from specformer.spectrum.spectrum import SolveReport, Spectrum
from specformer.spectrum.where import usable_device

logger = logging.getLogger(__name__)

Solver = Literal["auto", "dense", "lanczos", "chebyshev", "slepc"]
_SOLVERS = ("dense", "lanczos", "chebyshev", "slepc")
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


def decompose(
    source: Any,
    num_nodes: int | None = None,
    edge_weight: Any = None,
    *,
    k: int | tuple[int, int] | None = None,
    at_cut: Literal["include", "exclude"] = "include",
    isolated: Literal["one", "zero"] = "one",
    solver: Solver = "auto",
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    cache: str | Path | None = None,
    mirrors: Sequence[np.ndarray] = (),
    start: Spectrum | None = None,
    ranks: int | None = None,
    hostfile: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Spectrum:
    r"""Eigenpairs of the normalised Laplacian :math:`L = I - D^{-1/2} A D^{-1/2}`.

    Args:
        source: an ``edge_index``, a PyG ``Data``, a NetworkX graph, a SciPy sparse matrix, a
            :class:`~specformer.graphs.Graph`, or the path of a file holding one.
        num_nodes: number of nodes, where ``source`` alone does not tell.
        edge_weight: non-negative weights, one an edge of ``source``.
        k: None for all pairs, an int for at least the k smallest, ``(lo, hi)`` for at least the
            ``lo`` smallest and ``hi`` largest.
        at_cut: an eigenvalue repeated across the cut comes along whole (``"include"``: k is a
            least count) or is left out whole (``"exclude"``: k is an upper bound).
        isolated: what a node without edges contributes, an eigenvalue 1 or 0.
        solver: ``"dense"``, ``"lanczos"``, ``"chebyshev"``, ``"slepc"`` or ``"auto"``, which
            chooses between the first and the third.
        device: where to solve and where the result lives.
        dtype: precision of the result, float32 or float64. Solvers work in float64, but large
            problems in this one: ``chebyshev`` then multiplies in it and sums in float64, and so
            does ``dense`` on a GPU.
        cache: folder for results, found again by the content of the graph and these options;
            ``"auto"`` also takes what a solver asked for by name has left there. An unfinished
            ``chebyshev`` solve is kept there too, and goes on when asked for again.
        mirrors: commuting mirror symmetries of the graph, as permutations of its nodes; a dense
            solve is split by them (:mod:`specformer.spectrum.symmetry`).
        start: spectrum of an earlier state of this graph, with the same nodes or fewer;
            ``chebyshev`` begins with it and is done sooner.
        ranks: MPI processes for ``slepc``; refused with another solver.
        hostfile: machines they run on, as ``mpirun`` reads them.
        progress: called with the number of pairs that have converged and of those wanted.

    Returns:
        A :class:`Spectrum` whose ``report`` states solver, time, residual and orthogonality.

    Example:
        >>> triangle = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> decompose(triangle, num_nodes=3).eigenvalues
        tensor([0.0000, 1.5000, 1.5000])
    """
    check_precision(dtype)
    if at_cut not in ("include", "exclude"):
        raise SpectrumError(f"at_cut={at_cut!r}: choose 'include' or 'exclude'.")
    for option, value in (("ranks", ranks), ("hostfile", hostfile)):
        if value is not None and solver != "slepc":
            raise SpectrumError(f"{option}={value} goes with solver='slepc', not with {solver!r}.")
    adjacency = as_adjacency(source, num_nodes=num_nodes, edge_weight=edge_weight)
    target = usable_device(device)
    lowest, highest = _requested(k, adjacency.shape[0])
    names: list[str] = []
    if cache is not None:
        options = {
            "lowest": lowest,
            "highest": highest,
            "at_cut": at_cut,
            "isolated": isolated,
            "dtype": str(dtype),
        }
        graph = spectrum_cache.content(adjacency)
        # Whoever solved it, it passed the same checks.
        whose = (solver, *_SOLVERS) if solver == "auto" else (solver,)
        names = [spectrum_cache.key(graph, {**options, "solver": one}) for one in whose]
        for name in names:
            found = spectrum_cache.fetch(cache, name)
            if found is not None:
                return found.to(target)
        make_folder(cache)  # one that cannot be is better told before a long solve than after
    job = _Job(
        normalised_laplacian(adjacency, isolated=isolated),
        np.asarray(adjacency.sum(axis=1)).ravel(),
        lowest,
        highest,
        target,
        dtype,
        [np.asarray(mirror) for mirror in mirrors],
        None if start is None else _starting_pairs(start, adjacency.shape[0]),
        ranks,
        hostfile,
        progress,
        None if cache is None else Path(cache) / names[0],
    )
    spectrum = _solve(job, solver, at_cut)
    if cache is not None:
        spectrum_cache.keep(cache, names[0], spectrum)
    return spectrum


@dataclass(frozen=True)
class _Job:
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
        return subspace.EQUAL[worked_in.get(solver, torch.float64)]


def _requested(k: int | tuple[int, int] | None, n: int) -> tuple[int, int]:
    """How many pairs from the low and the high end; everything is ``(n, 0)``."""
    if k is None:
        return n, 0
    try:
        lowest, highest = map(operator.index, k if isinstance(k, tuple | list) else (k, 0))
    except (TypeError, ValueError):
        lowest = highest = -1
    if lowest < 0 or highest < 0:
        raise SpectrumError(f"k={k!r}: expected None, a positive int or a pair (lo, hi).")
    if lowest + highest == 0:
        raise SpectrumError(f"k={k!r} asks for no eigenpairs.")
    return (n, 0) if lowest + highest >= n else (lowest, highest)


def _solve(job: _Job, solver: str, at_cut: str) -> Spectrum:
    started = time.perf_counter()
    name, reason, values, vectors = _answer(job, solver)
    equal = job.equal(name)
    keep = _whole_groups(values, job.lowest, job.highest, at_cut, equal)
    if len(keep) < len(values):
        vectors = vectors[:, torch.as_tensor(keep, device=vectors.device)]
    eigenvalues = torch.as_tensor(snap(values[keep], equal)).to(device=job.device, dtype=job.dtype)
    eigenvectors = _canonical_signs(vectors.to(device=job.device, dtype=job.dtype))
    residual = max_residual(job.laplacian, eigenvalues, eigenvectors)
    orthogonality = max_orthogonality_error(eigenvectors)
    seconds = time.perf_counter() - started
    if not (residual <= TOLERANCE and orthogonality <= TOLERANCE):
        raise SpectrumError(
            f"solver {name!r} failed its checks: residual {residual:.1e}, orthogonality error "
            f"{orthogonality:.1e}, both should be at most {TOLERANCE:.0e}."
        )
    components, _ = connected_components(job.laplacian, directed=False)
    report = SolveReport(name, reason, seconds, residual, orthogonality, components)
    return Spectrum(eigenvalues, eigenvectors, report)


def _answer(job: _Job, solver: str) -> tuple[str, str, np.ndarray, Tensor]:
    """The name of the solver that succeeded, why it was asked, and what it found."""
    wanted = job.lowest + job.highest
    name, reason = _choose(solver, job.num_nodes, wanted, job.device, job.dense_dtype)
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


def _announce(name: str, reason: str, job: _Job) -> None:
    """Say who will solve and how much memory that takes, aloud if it is much."""
    need = _required_bytes(name, job)
    size = f"; about {need / 2**30:.1f} GiB on {job.device}" if need >= _MUCH else ""
    logger.log(logging.WARNING if size else logging.INFO, "solver %s: %s%s", name, reason, size)


def _required_bytes(name: str, job: _Job) -> int:
    """Peak memory of a solve, as far as it is known beforehand."""
    if name == "dense":
        return dense.required_bytes(job.num_nodes, job.device, job.dense_dtype)
    size = (job.num_nodes, job.lowest, job.highest, job.laplacian.nnz)
    if name == "chebyshev":
        return chebyshev.required_bytes(*size, job.working_dtype)
    return lanczos.required_bytes(*size) if name == "lanczos" else 0


def _ask(name: str, job: _Job) -> tuple[np.ndarray, Tensor]:
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


def _fallback(name: str, job: _Job) -> str | None:
    """Whom to ask when a solver gave up: LAPACK where it fits, else the other iterative one."""
    if dense.refusal(job.num_nodes, job.device, job.dense_dtype) is None:
        return "dense"
    size = (job.num_nodes, job.lowest, job.highest, job.laplacian.nnz)
    if name == "lanczos" and not chebyshev.refusal(*size, job.working_dtype, job.device):
        return "chebyshev"
    return None


def _choose(
    solver: str,
    n: int,
    wanted: int,
    device: torch.device,
    dense_dtype: torch.dtype = torch.float64,
) -> tuple[str, str]:
    """A solver's name and why it was chosen."""
    if solver in _SOLVERS:
        few = wanted < n // 2 and n > 64
        if solver != "dense" and not few:
            return "dense", f"{wanted} of {n} pairs are too many for solver {solver!r}"
        return solver, "as asked for"
    if solver != "auto":
        raise SpectrumError(f"unknown solver {solver!r}; choose auto, {', '.join(_SOLVERS)}.")
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


def _starting_pairs(start: Any, n: int) -> tuple[np.ndarray, Tensor]:
    """Pairs of an older spectrum, zero on nodes that were added since."""
    if not isinstance(start, Spectrum):
        raise SpectrumError(f"start must be a Spectrum, not {type(start).__name__}.")
    if start.num_nodes > n:
        raise SpectrumError(
            f"start has {start.num_nodes:,} nodes, the graph {n:,}: a spectrum can be refreshed "
            "after nodes were added, not after they were removed."
        )
    vectors = start.eigenvectors.detach()
    padded = torch.nn.functional.pad(vectors, (0, 0, 0, n - start.num_nodes))
    return start.eigenvalues.detach().double().cpu().numpy(), padded


def _whole_groups(
    values: np.ndarray, lowest: int, highest: int, at_cut: str, equal: float
) -> np.ndarray:
    """Positions to keep so that no group of equal eigenvalues is cut."""
    count = len(values)
    edges = np.append(group_starts(values, equal), count)
    if at_cut == "include":
        low = edges[np.searchsorted(edges, min(lowest, count), side="left")]
        high = edges[np.searchsorted(edges, max(count - highest, 0), side="right") - 1]
    else:
        low = edges[np.searchsorted(edges, min(lowest, count), side="right") - 1]
        high = edges[np.searchsorted(edges, max(count - highest, 0), side="left")]
    keep = np.concatenate([np.arange(low), np.arange(max(high, low), count)])
    if keep.size == 0:
        raise SpectrumError(
            f"the first eigenvalue is repeated more than k={lowest + highest} times; "
            "use at_cut='include' or a larger k."
        )
    return keep


def _canonical_signs(vectors: Tensor) -> Tensor:
    """Flip each column so that its entry of largest magnitude is positive."""
    if vectors.numel() == 0:
        return vectors
    peak = vectors.abs().argmax(dim=0, keepdim=True)
    signs = torch.sign(vectors.gather(0, peak))
    return vectors.mul_(signs)
