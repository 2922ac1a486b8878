r"""Decomposition: ``decompose`` beside SciPy's ARPACK at a few of the smallest eigenpairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from scipy.sparse.linalg import eigsh

from specformer.benchmarks.measure import Contestant, Plan, Runner, bench_row, measure
from specformer.datasets.graph_source import graph_source
from specformer.graphs import Graph, normalised_laplacian
from specformer.spectrum import decompose
from specformer.training.runs.progress import Progress

DATASETS = ("cora", "citeseer", "squirrel")
#: Eigenpairs asked for.
PAIRS = 50
#: The tolerance that the released code of the paper gives ARPACK.
_TOLERANCE = 1e-5


def bench_spectra(
    sources: Sequence[str] = DATASETS,
    *,
    data: str | Path | None = None,
    device: torch.device,
    plan: Plan,
    progress: Progress,
) -> list[dict[str, Any]]:
    """A row a graph; an "epoch" is one decomposition, and no floor is stated."""
    rows = []
    for source in sources:
        with progress.stage(f"bench {source}", plan.repeats + 1, "round") as update:
            graph, _ = graph_source(source, data)
            contestants = [ours(graph, device), reference(graph)]
            found = measure(contestants, device, plan, update, memory=False)
            more = {"nodes": graph.num_nodes, "eigenpairs": _pairs(graph)}
            rows.append(bench_row(graph.name, found, None, **more))
    return rows


def ours(graph: Graph, device: torch.device) -> Contestant:
    """Solve, check and never cut through an eigenspace, with no cache."""

    def build() -> Runner:
        def run(times: int) -> None:
            for _ in range(times):
                decompose(graph, k=_pairs(graph), device=device)

        return run

    return Contestant("ours", build)


def reference(graph: Graph) -> Contestant:
    """ARPACK on the Laplacian's lower end."""

    def build() -> Runner:
        laplacian = normalised_laplacian(graph)

        def run(times: int) -> None:
            for _ in range(times):
                eigsh(laplacian, k=_pairs(graph), which="SA", tol=_TOLERANCE)

        return run

    return Contestant("reference", build)


def _pairs(graph: Graph) -> int:
    return min(PAIRS, graph.num_nodes - 1)


def decomposition_seconds(graph: Graph, device: torch.device) -> float:
    """How long one complete decomposition takes, the second of two."""
    for _ in range(2):
        began = time.perf_counter()
        decompose(graph, device=device)
        took = time.perf_counter() - began
    return took
