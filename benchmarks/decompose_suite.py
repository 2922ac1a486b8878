r"""Time and memory of large spectra and of many small ones, with ARPACK for comparison."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from benchmarks.measure import Setting, synchronise
from benchmarks.sized_graph import NAME, sized_graph
from specformer.datasets import graph_set
from specformer.datasets.registry import graph_source
from specformer.errors import ConfigError
from specformer.graphs import Graph, GraphSet, normalised_laplacian
from specformer.spectrum import Spectrum, decompose, decompose_many
from specformer.tasks.job import holds_many
from specformer.training.runs.progress import Update

#: The result of a solver.
Found = TypeVar("Found")

#: Each case is ``NAME[:PAIRS[:SOLVER]]``; pairs are 50, 3000+3000 (both ends) or all. A set of
#: graphs is only a name.
CASES = (
    "ogbn-arxiv-structure:5000",
    "cornell5:3000+3000:chebyshev",
    "cornell5:3000+3000",
    "penn94-sized:3000+3000",
    "penn94-sized:all",
    "zinc",
    "molpcba",
)
#: Number of pairs that ARPACK computes, its tolerance, and its time limit in seconds.
ARPACK_PAIRS, ARPACK_TOLERANCE, ARPACK_SECONDS = 20, 1e-5, 60.0
_DEFAULT_PAIRS = "50"


@dataclass(frozen=True)
class DecomposePlan:
    """How often each case is decomposed."""

    repeats: int = 1


@dataclass(frozen=True)
class DecomposeCase:
    """A graph's name, which of its eigenpairs, and the solver."""

    name: str
    pairs: str
    solver: str

    @classmethod
    def of(cls, text: str) -> DecomposeCase:
        """Read ``NAME[:PAIRS[:SOLVER]]``.

        Example:
            >>> DecomposeCase.of("cornell5:10+20").k
            (10, 20)
        """
        name, _, rest = text.partition(":")
        pairs, _, solver = rest.partition(":")
        case = cls(name, pairs or _DEFAULT_PAIRS, solver or "auto")
        case.k  # noqa: B018 - report a wrong value before anything runs
        return case

    @property
    def k(self) -> int | tuple[int, int] | None:
        """The argument ``k`` of :func:`specformer.decompose`."""
        if self.pairs == "all":
            return None
        try:
            low, *high = (int(part) for part in self.pairs.split("+"))
        except ValueError:
            low, high = 0, []
        if low < 1 or len(high) > 1 or min(high, default=1) < 1:
            raise ConfigError(f"{self.name}:{self.pairs}: give eigenpairs as 50, 3000+3000 or all.")
        return (low, high[0]) if high else low


def bench_decompositions(
    cases: Sequence[str], setting: Setting, plan: DecomposePlan
) -> list[dict[str, Any]]:
    """One row per case. Graphs and ARPACK's times are kept for later cases of the same graph."""
    data, device = setting.data, setting.device
    read = [text if holds_many(text) else DecomposeCase.of(text) for text in cases]
    graphs: dict[str, Graph] = {}
    arpack: dict[str, float | None] = {}
    rows = []
    for case in read:
        name = case if isinstance(case, str) else case.name
        with setting.progress.stage(f"decompose {name}", plan.repeats, "repeat") as update:
            if isinstance(case, str):
                rows.append(_measured_set(graph_set(case, data), device, plan, update))
                continue
            if case.name not in graphs:
                graphs[case.name] = _graph(case.name, data)
                arpack[case.name] = arpack_seconds(graphs[case.name])
            rows.append(
                {
                    **_measured(case, graphs[case.name], device, plan, update),
                    "arpack_pairs": ARPACK_PAIRS,
                    "arpack_seconds": arpack[case.name],
                    "arpack_limit": ARPACK_SECONDS,
                }
            )
    return rows


def _graph(name: str, data: str | Path | None) -> Graph:
    return sized_graph() if name == NAME else graph_source(name, data)[0]


def _measured(
    case: DecomposeCase, graph: Graph, device: torch.device, plan: DecomposePlan, update: Update
) -> dict[str, Any]:
    def solve() -> Spectrum:
        return decompose(graph, k=case.k, solver=cast(Any, case.solver), device=device)

    spectrum, seconds, peak = _timed(solve, device, plan, update)
    report = spectrum.report
    assert report is not None
    return {
        "case": case.name,
        "graphs": 1,
        "asked": case.pairs,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "eigenpairs": spectrum.num_eigenpairs,
        "solver": report.solver,
        "seconds": seconds,
        "mb": peak,
        "residual": report.max_residual,
        "orthogonality": report.max_orthogonality_error,
    }


def _measured_set(
    graphs: GraphSet, device: torch.device, plan: DecomposePlan, update: Update
) -> dict[str, Any]:
    """All eigenpairs of every graph of a set. ARPACK cannot solve many small graphs at once."""
    solve = partial(decompose_many, graphs, device=device)
    spectra, seconds, peak = _timed(solve, device, plan, update)
    return {
        "case": graphs.name,
        "graphs": len(graphs),
        "asked": "all",
        "nodes": int(graphs.num_nodes.sum()),
        "edges": int(graphs.num_edges.sum()),
        "eigenpairs": len(spectra.eigenvalues),
        "solver": "batched",
        "seconds": seconds,
        "mb": peak,
        "residual": spectra.report.max_residual,
        "orthogonality": spectra.report.max_orthogonality_error,
        "arpack_pairs": ARPACK_PAIRS,
        "arpack_seconds": None,
        "arpack_limit": None,
    }


def _timed(
    solve: Callable[[], Found], device: torch.device, plan: DecomposePlan, update: Update
) -> tuple[Found, float, float | None]:
    """The result of the last repeat, the median of the seconds, and the peak in megabytes."""
    seconds, peaks = [], []
    found: Found | None = None
    for repeat in range(plan.repeats):
        found = None  # else this repeat's peak would include the last result
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        synchronise(device)
        began = time.perf_counter()
        found = solve()
        synchronise(device)
        seconds.append(time.perf_counter() - began)
        if device.type == "cuda":
            peaks.append(torch.cuda.max_memory_allocated(device) / 1e6)
        update(repeat + 1, repeat + 1)
    assert found is not None
    return found, statistics.median(seconds), max(peaks, default=None)


def arpack_seconds(graph: Graph, limit: float = ARPACK_SECONDS) -> float | None:
    """Seconds of SciPy's ARPACK on the CPU for a few of the smallest pairs.

    It computes the largest eigenvalues of I − L, because Lanczos finds these first. None if it does
    not finish within ``limit`` seconds.
    """
    laplacian = normalised_laplacian(graph.adjacency)
    began = time.perf_counter()

    def product(x: np.ndarray) -> np.ndarray:
        if time.perf_counter() - began > limit:
            raise TimeoutError
        return cast(np.ndarray, x - laplacian @ x)

    operator = LinearOperator(laplacian.shape, matvec=product, dtype=np.float64)
    pairs = min(ARPACK_PAIRS, graph.num_nodes - 1)
    try:
        eigsh(operator, k=pairs, which="LA", tol=ARPACK_TOLERANCE)
    except (TimeoutError, ArpackNoConvergence):
        return None
    return time.perf_counter() - began
