r"""Decomposition: ``decompose`` beside SciPy's ARPACK at a few of the smallest eigenpairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import torch
from scipy.sparse.linalg import eigsh

from specformer.benchmarks.measure import Contestant, Plan, Runner, bench_row, measure
from specformer.experiments.graph_source import graph_source
from specformer.graphs import Graph, normalised_laplacian
from specformer.spectrum import decompose
from specformer.training.progress import Progress

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
            pairs = min(PAIRS, graph.num_nodes - 1)
            more = {"nodes": graph.num_nodes, "eigenpairs": pairs}
            rows.append(bench_row(graph.name, found, None, **more))
    return rows


def ours(graph: Graph, device: torch.device) -> Contestant:
    """Solve, check and never cut through an eigenspace, with no cache."""

    def build() -> Runner:
        def run(times: int) -> None:
            for _ in range(times):
                decompose(graph, k=min(PAIRS, graph.num_nodes - 1), device=device)

        return run

    return Contestant("ours", build)


def reference(graph: Graph) -> Contestant:
    """ARPACK on the Laplacian's lower end."""

    def build() -> Runner:
        laplacian = sp.csr_array(normalised_laplacian(graph.adjacency))

        def run(times: int) -> None:
            for _ in range(times):
                k = min(PAIRS, graph.num_nodes - 1)
                eigsh(laplacian, k=k, which="SA", tol=_TOLERANCE)

        return run

    return Contestant("reference", build)


def decomposition_seconds(graph: Graph, device: torch.device, k: Any = None) -> float:
    """How long one decomposition takes, the second of two."""
    for _ in range(2):
        began = time.perf_counter()
        decompose(graph, k=k, device=device)
        took = time.perf_counter() - began
    return took
