r"""From a graph to its :class:`Spectrum`: solve, check, cache."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from specformer.errors import SpectrumError
from specformer.files import make_folder
from specformer.graphs import as_adjacency
from specformer.graphs.convert import magnetic_laplacian, signed_adjacency
from specformer.graphs.laplacian import laplacian_of
from specformer.spectrum import cache as spectrum_cache
from specformer.spectrum.devices import available_bytes, usable_device
from specformer.spectrum.eigenpairs import (
    EQUAL_TOLERANCE,
    TIE,
    canonical_signs,
    check_eigenpairs,
    group_starts,
    max_orthogonality_error,
    max_residual,
    snap,
)
from specformer.spectrum.magnetic import solve_magnetic
from specformer.spectrum.products import check_precision
from specformer.spectrum.shards import FORMAT, SHARD, chosen_rows, emptied, write_index
from specformer.spectrum.solvers import choice, slepc
from specformer.spectrum.solvers.problem import Problem, Progress
from specformer.spectrum.spectrum import SolveReport, Spectrum

#: Eigenvectors may take this share of a GPU's free memory; models and signals need the rest.
_SHARE = 0.5


def decompose(
    source: Any,
    num_nodes: int | None = None,
    edge_weight: Any = None,
    *,
    k: int | tuple[int, int] | None = None,
    at_cut: Literal["include", "exclude"] = "include",
    isolated: Literal["one", "zero"] = "one",
    charge: float | None = None,
    solver: choice.Solver = "auto",
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    cache: str | Path | None = None,
    mirrors: Sequence[np.ndarray] = (),
    start: Spectrum | None = None,
    ranks: int | None = None,
    hostfile: str | Path | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    nodes: slice | None = None,
) -> Spectrum:
    r"""Eigenpairs of the normalised Laplacian :math:`L = I - D^{-1/2} A D^{-1/2}`.

    Args:
        source: an ``edge_index``, a PyG ``Data``, a NetworkX graph, a SciPy sparse matrix, a
            :class:`~specformer.graphs.Graph`, or the path of a file holding one.
        num_nodes: number of nodes, if ``source`` does not tell it.
        edge_weight: weights, one per edge of ``source``. If some are negative, D holds the sums of
            absolute values, and L is the signed Laplacian.
        k: None for all pairs, an int for at least the k smallest, ``(lo, hi)`` for at least the
            ``lo`` smallest and ``hi`` largest.
        at_cut: whether all copies of an eigenvalue repeated across the cut are included
            (``"include"``: k is a lower bound) or left out (``"exclude"``: k is an upper bound).
        isolated: the eigenvalue, 1 or 0, that a node without edges adds.
        charge: q of the magnetic Laplacian, for directed graphs, such as 0.25; the result is a
            :class:`~specformer.spectrum.magnetic.MagneticSpectrum`. None ignores directions.
        solver: ``"dense"``, ``"lanczos"``, ``"chebyshev"``, ``"slepc"`` or ``"auto"``, which
            chooses between the first and the third.
        device: where to solve and where the result lives.
        dtype: precision of the result, float32 or float64. Solvers work in float64, except for
            large problems: then ``chebyshev`` multiplies in this precision and sums in float64,
            and ``dense`` on a GPU solves in it.
        cache: folder for results, found again by the content of the graph and these options;
            ``"auto"`` also takes the results of other solvers. An unfinished ``chebyshev`` solve is
            saved there too, and continues when asked for again.
        mirrors: commuting mirror symmetries of the graph, as permutations of its nodes; a dense
            solve is split by them (:mod:`specformer.spectrum.solvers.dense`).
        start: spectrum of an earlier state of this graph, with the same nodes or fewer;
            ``chebyshev`` starts from it and finishes sooner.
        ranks: MPI processes for ``slepc``; refused with another solver.
        hostfile: machines they run on, as ``mpirun`` reads them.
        progress: called with the number of pairs that have converged and of those wanted.
        out: folder for the result in shards of rows, of which processes can read parts. With
            ``slepc`` every rank writes its own shards, here or, without ``out``, in the cache.
        nodes: the nodes whose rows are returned, such as ``slice(0, 0)``, if the whole result does
            not fit into this process's memory. None for all.

    Returns:
        A :class:`Spectrum` whose ``report`` states solver, time, residual and orthogonality.

    Example:
        >>> triangle = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> decompose(triangle, num_nodes=3).eigenvalues
        tensor([0.0000, 1.5000, 1.5000])
    """
    check_precision(dtype)
    if nodes is not None and (charge is not None or (out is None and cache is None)):
        raise SpectrumError(f"nodes={nodes}: name a folder for all rows with out or cache.")
    if out == "":
        raise SpectrumError("out='' names no folder; leave it out, or pass '.' for this folder.")
    if at_cut not in ("include", "exclude"):
        raise SpectrumError(f"at_cut={at_cut!r}: choose 'include' or 'exclude'.")
    for option, value in (("ranks", ranks), ("hostfile", hostfile)):
        if value is not None and solver != "slepc":
            raise SpectrumError(f"{option}={value} needs solver='slepc', not {solver!r}.")
    if charge is not None:
        refused = {"cache": cache, "start": start, "mirrors": mirrors or None, "out": out}
        given = [name for name, value in refused.items() if value is not None]
        if given or solver not in ("auto", "dense"):
            named = given[0] if given else f"solver={solver!r}"
            raise SpectrumError(f"{named} is not for directed graphs (charge={charge}).")
        laplacian = magnetic_laplacian(source, charge, num_nodes, edge_weight, isolated)
        ends = _requested(k, laplacian.shape[0])
        whole = partial(_whole_groups, lowest=ends[0], highest=ends[1], at_cut=at_cut)
        return solve_magnetic(laplacian, whole, usable_device(device), dtype)
    adjacency = signed_adjacency(source, num_nodes=num_nodes, edge_weight=edge_weight)
    target = usable_device(device)
    lowest, highest = _requested(k, adjacency.shape[0])
    chosen_rows(nodes, adjacency.shape[0])  # not as late as in the cache, which would drop its file
    graph = spectrum_cache.content(adjacency)
    names = _cache_names(graph, lowest, highest, solver, str(dtype), at_cut, isolated)
    if out is not None:
        make_folder(out)  # fails before a long solve, not after it
    if cache is not None:
        found = spectrum_cache.fetch(cache, names, graph, None if out else nodes)
        if found is not None:
            if out is not None:
                found.save(f"{out}/")
            return _rows_of(found, nodes if out else None).to(target)
        make_folder(cache)
    problem = Problem(
        laplacian_of(adjacency, isolated),
        lowest,
        highest,
        degrees=np.asarray(abs(adjacency).sum(axis=1)).ravel(),
        device=target,
        dtype=dtype,
        mirrors=[np.asarray(mirror) for mirror in mirrors],
        start=None if start is None else _starting_pairs(start, adjacency.shape[0]),
        ranks=ranks,
        hostfile=hostfile,
        progress=progress,
        state=None if cache is None else Path(cache) / names[0],
    )
    kept = None if cache is None else spectrum_cache.rows_folder(cache, names[0])
    folder = Path(out) if out is not None else kept
    by_ranks = solver == "slepc" and choice.choose(solver, problem, problem.num_pairs)[0] == solver
    if by_ranks and at_cut == "include" and folder is not None:
        _solve_into(folder, problem, graph)
        if kept is not None and kept != folder:
            spectrum_cache.link_shards(kept, folder)
        return Spectrum.load(folder, nodes).to(target)
    spectrum = _solve(problem, solver, at_cut, graph)
    if cache is not None:
        spectrum_cache.keep(spectrum_cache.file_of(cache, names[0]), spectrum.save)
    if out is not None:
        spectrum.save(f"{out}/")
    return _rows_of(spectrum, nodes)


def _rows_of(spectrum: Spectrum, nodes: slice | None) -> Spectrum:
    if nodes is None:
        return spectrum
    first, last = chosen_rows(nodes, spectrum.num_nodes)
    rows = spectrum.eigenvectors[first:last]
    return replace(spectrum, eigenvectors=rows, all_nodes=spectrum.num_nodes)


def decompose_rows(
    source: Any,
    nodes: slice,
    *,
    k: int | tuple[int, int] | None = None,
    device: torch.device | str | None = None,
    cache: str | Path,
    solve: bool = True,
    content: str | None = None,
) -> Spectrum:
    """As :func:`specformer.decompose`, but only the rows of some nodes: for one of many processes.

    All processes read the cache. A spectrum that is not there is solved by the process with
    ``solve`` and stored there in shards of rows. ``content`` is the hash of a graph of which
    ``source`` has some rows; its spectrum must be in the cache.
    """
    adjacency = source.adjacency if content else as_adjacency(source)  # rows are not square
    graph = content or spectrum_cache.content(adjacency)
    ends = _requested(k, adjacency.shape[1])
    names = _cache_names(graph, *ends, "auto")
    found = spectrum_cache.fetch(cache, names, graph, nodes)
    if found is None and content:
        raise SpectrumError(
            f"{cache}: has no spectrum of this graph in parts; decompose it first with `specformer "
            "spectrum FOLDER --k … --cache …`, or train without one: --set spectrum=density."
        )
    if found is None and solve:
        decompose(adjacency, k=k, device=device, out=spectrum_cache.rows_folder(cache, names[0]))
        found = spectrum_cache.fetch(cache, names, graph, nodes)
    if found is None:
        raise SpectrumError(
            f"{cache}: this process does not find the spectrum that the first one stored there; "
            "with --cache, name a folder that all machines share."
        )
    return found


def _cache_names(
    graph: str,
    lowest: int,
    highest: int,
    solver: str,
    dtype: str = str(torch.float32),
    at_cut: str = "include",
    isolated: str = "one",
) -> list[str]:
    """The names under which a spectrum may be cached; the first is used to store it."""
    options: dict[str, object] = {"lowest": lowest, "highest": highest, "at_cut": at_cut}
    options |= {"isolated": isolated, "dtype": dtype}
    # All solvers pass the same checks, so "auto" takes any of their results.
    whose = (solver, *choice.SOLVERS) if solver == "auto" else (solver,)
    return [spectrum_cache.key(graph, {**options, "solver": one}) for one in whose]


def _requested(k: int | tuple[int, int] | None, n: int) -> tuple[int, int]:
    """Number of pairs at the low and the high end; all pairs are ``(n, 0)``."""
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


def _solve(problem: Problem, solver: str, at_cut: str, graph: str) -> Spectrum:
    started = time.perf_counter()
    name, reason, values, vectors = choice.solve(problem, solver)
    equal = problem.equal(name)
    keep = _whole_groups(values, problem.lowest, problem.highest, at_cut, equal)
    if len(keep) < len(values):
        vectors = vectors[:, torch.as_tensor(keep, device=vectors.device)]
    eigenvalues = torch.as_tensor(snap(values[keep], equal)).to(
        device=problem.device, dtype=problem.dtype
    )
    # Stored by rows, as in a Spectrum; if the type changes, this needs no further copy.
    by_rows = vectors.to(problem.device, problem.dtype, memory_format=torch.contiguous_format)
    eigenvectors = canonical_signs(by_rows)
    residual = max_residual(problem.laplacian, eigenvalues, eigenvectors)
    orthogonality = max_orthogonality_error(eigenvectors)
    seconds = time.perf_counter() - started
    check_eigenpairs(f"solver {name!r}", residual, orthogonality)
    components, _ = connected_components(problem.laplacian, directed=False)
    report = SolveReport(name, reason, seconds, residual, orthogonality, components, graph)
    return Spectrum(eigenvalues, eigenvectors, report)


def _solve_into(folder: Path, problem: Problem, graph: str) -> None:
    """Let SLEPc's ranks write their rows into a folder; this process writes the index."""
    started, name = time.perf_counter(), "slepc"
    out = {"folder": str(emptied(folder).resolve()), "format": FORMAT, "shard": SHARD, "tie": TIE}
    out["dtype"] = str(problem.dtype).removeprefix("torch.")
    found, shards, errors = slepc.solve_into(out, problem)
    equal = problem.equal(name)
    keep = _whole_groups(found, problem.lowest, problem.highest, "include", equal)
    if len(keep) < len(found):
        raise SpectrumError(
            "SLEPc's two ends overlap; ask for fewer pairs, or for all with solver='dense'."
        )
    check_eigenpairs(f"solver {name!r}", *errors)
    seconds = time.perf_counter() - started
    components, _ = connected_components(problem.laplacian, directed=False)
    report = SolveReport(name, "as asked for", seconds, *errors, components, graph)
    values = torch.as_tensor(snap(found, equal)).to(problem.dtype)
    write_index(folder, problem.num_nodes, values, shards, asdict(report))


def _starting_pairs(start: Any, n: int) -> tuple[np.ndarray, Tensor]:
    """Pairs of an older spectrum; zero on nodes that were added since."""
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
    values: np.ndarray, lowest: int, highest: int, at_cut: str, equal: float = EQUAL_TOLERANCE
) -> np.ndarray:
    """Positions to keep, so that no group of equal eigenvalues is cut."""
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


def vectors_fit(
    num_nodes: int,
    k: int | Sequence[int] | None,
    device: torch.device,
    storage: torch.dtype = torch.float32,
) -> bool:
    """Whether a device has memory for the eigenvectors; a CPU always has, as it can map a file."""
    need = vector_bytes(num_nodes, k, storage)
    return device.type == "cpu" or need <= _SHARE * available_bytes(device)


def decompose_streamed(
    source: Any,
    *,
    k: int | tuple[int, int] | None = None,
    device: torch.device | str | None = None,
    storage: torch.dtype = torch.float32,
    cache: str | Path | None = None,
) -> Spectrum:
    """As :func:`specformer.decompose`, for a device that need not hold the eigenvectors.

    They stay in the cache's file, which is mapped, or in the host's memory without a cache or if
    the CPU has just computed them (:meth:`Spectrum.streamed`). The solve runs on the device if the
    eigenvectors fit there, else on the CPU. A cached spectrum is not solved again. ``storage`` is
    the precision to store eigenvectors in; each has its own file in the cache.
    """
    adjacency, target, own = as_adjacency(source), usable_device(device), None
    if cache is not None and storage != torch.float32:
        graph = spectrum_cache.content(adjacency)
        name = spectrum_cache.key(graph, {"k": k, "storage": str(storage)})
        if found := spectrum_cache.fetch(cache, [name], graph):
            return found.streamed(target)
        own = spectrum_cache.file_of(cache, name)
    fits = vectors_fit(adjacency.shape[0], k, target)
    solved = decompose(adjacency, k=k, device=target if fits else "cpu", cache=cache)
    if cache is not None and solved.device.type != "cpu":
        del solved  # it is in the cache now, whose file is mapped
        solved = decompose(adjacency, k=k, cache=cache)
    spectrum = solved.cpu().streamed(storage=storage)
    if own is not None and spectrum_cache.keep(own, spectrum.save):
        spectrum = Spectrum.load(own)
    return spectrum.streamed(target)


def vector_bytes(num_nodes: int, k: int | Sequence[int] | None, storage: torch.dtype) -> int:
    """The least memory of the eigenvectors."""
    pairs = num_nodes if k is None else k if isinstance(k, int) else sum(k)
    return num_nodes * min(pairs, num_nodes) * storage.itemsize
