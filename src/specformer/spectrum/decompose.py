r"""From a graph to its :class:`Spectrum`: choose a solver, solve, check, cache."""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.graphs import as_adjacency, normalised_laplacian
from specformer.spectrum import cache as spectrum_cache
from specformer.spectrum.checks import TOLERANCE, max_orthogonality_error, max_residual
from specformer.spectrum.distinct import group_starts, snap
from specformer.spectrum.solvers import dense, lanczos
from specformer.spectrum.spectrum import SolveReport, Spectrum

logger = logging.getLogger(__name__)

Solver = Literal["auto", "dense", "lanczos"]
#: ``auto`` goes dense below this many nodes whatever k is: it takes about a second.
_SMALL = 2_500
#: ``auto`` asks ARPACK only for fewer than one pair in this many nodes.
_FEW = 20


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
        solver: ``"dense"``, ``"lanczos"`` or ``"auto"``.
        device: where to solve and where the result lives.
        dtype: precision of the result; solvers work in float64.
        cache: folder for results, found again by the content of the graph and these options.
        mirrors: commuting mirror symmetries of the graph, as permutations of its nodes; a dense
            solve is split by them (:mod:`specformer.spectrum.symmetry`).

    Returns:
        A :class:`Spectrum` whose ``report`` states solver, time, residual and orthogonality.

    Example:
        >>> triangle = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> decompose(triangle, num_nodes=3).eigenvalues
        tensor([0.0000, 1.5000, 1.5000])
    """
    adjacency = as_adjacency(source, num_nodes=num_nodes, edge_weight=edge_weight)
    target = torch.device(device or "cpu")
    lowest, highest = _requested(k, adjacency.shape[0])
    key = spectrum_cache.key(
        adjacency,
        {
            "lowest": lowest,
            "highest": highest,
            "at_cut": at_cut,
            "isolated": isolated,
            "solver": solver,
            "dtype": str(dtype),
        },
    )
    if cache is not None:
        found = spectrum_cache.fetch(cache, key)
        if found is not None:
            return found.to(target)
    laplacian = normalised_laplacian(adjacency, isolated=isolated)
    spectrum = _solve(laplacian, lowest, highest, at_cut, solver, target, dtype, mirrors)
    if cache is not None:
        spectrum_cache.store(cache, key, spectrum)
    return spectrum


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


def _solve(
    laplacian: sp.csr_array,
    lowest: int,
    highest: int,
    at_cut: str,
    solver: str,
    device: torch.device,
    dtype: torch.dtype,
    mirrors: Sequence[np.ndarray],
) -> Spectrum:
    n = laplacian.shape[0]
    started = time.perf_counter()
    name, reason = _choose(solver, n, lowest + highest, device)
    logger.info("solver %s: %s", name, reason)
    values: np.ndarray
    vectors: Tensor
    if name == "lanczos":
        try:
            values, columns = lanczos.solve(laplacian, lowest, highest)
            vectors = torch.as_tensor(np.ascontiguousarray(columns))
        except SpectrumError as error:
            refused = dense.refusal(n, device)
            if refused:
                raise SpectrumError(f"{error} No way round it: {refused}.") from error
            name, reason = "dense", f"lanczos gave up: {error}"
            logger.warning("solver dense: %s", reason)
    if name == "dense":
        values, vectors = dense.solve(laplacian, device, mirrors)
        if mirrors:
            reason += f"; {len(mirrors)} mirror symmetries split the problem"
    keep = _whole_groups(values, lowest, highest, at_cut)
    if len(keep) < len(values):
        vectors = vectors[:, torch.as_tensor(keep, device=vectors.device)]
    eigenvalues = torch.as_tensor(snap(values[keep])).to(device=device, dtype=dtype)
    eigenvectors = _canonical_signs(vectors.to(device=device, dtype=dtype))
    residual = max_residual(laplacian, eigenvalues, eigenvectors)
    orthogonality = max_orthogonality_error(eigenvectors)
    seconds = time.perf_counter() - started
    if not (residual <= TOLERANCE and orthogonality <= TOLERANCE):
        raise SpectrumError(
            f"solver {name!r} failed its checks: residual {residual:.1e}, orthogonality error "
            f"{orthogonality:.1e}, both should be at most {TOLERANCE:.0e}."
        )
    components, _ = connected_components(laplacian, directed=False)
    report = SolveReport(name, reason, seconds, residual, orthogonality, components)
    return Spectrum(eigenvalues, eigenvectors, report)


def _choose(solver: str, n: int, wanted: int, device: torch.device) -> tuple[str, str]:
    """A solver's name and why it was chosen."""
    if solver in ("dense", "lanczos"):
        few = wanted < n // 2 and n > 64
        if solver == "lanczos" and not few:
            return "dense", f"{wanted} of {n} pairs are too many for a Krylov method"
        return solver, "as asked for"
    if solver != "auto":
        raise SpectrumError(f"unknown solver {solver!r}; choose auto, dense or lanczos.")
    if n <= _SMALL:
        return "dense", f"{n:,} nodes are few"
    if wanted * _FEW <= n:
        return "lanczos", f"{wanted:,} of {n:,} pairs are few"
    refused = dense.refusal(n, device)
    if refused:
        if wanted < n // 2:
            return "lanczos", refused
        raise SpectrumError(f"{refused}; ask for fewer eigenpairs with k=….")
    return "dense", f"{wanted:,} of {n:,} pairs, and {n:,} nodes fit in memory"


def _whole_groups(values: np.ndarray, lowest: int, highest: int, at_cut: str) -> np.ndarray:
    """Positions to keep so that no group of equal eigenvalues is cut."""
    if at_cut not in ("include", "exclude"):
        raise SpectrumError(f"at_cut={at_cut!r}: choose 'include' or 'exclude'.")
    count = len(values)
    edges = np.append(group_starts(values), count)
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
