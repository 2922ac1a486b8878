r"""Decomposition: ``decompose`` and SciPy's ARPACK, for a few of the smallest eigenpairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from scipy.sparse.linalg import eigsh

from benchmarks.measure import Candidate, Plan, Runner, Setting, bench_row, measure
from specformer.datasets.registry import graph_source
from specformer.graphs import Graph, normalised_laplacian
from specformer.spectrum import decompose

DATASETS = ("cora", "citeseer", "squirrel")
#: Number of eigenpairs.
PAIRS = 50
#: The tolerance that the released code of the paper gives ARPACK.
_TOLERANCE = 1e-5


def bench_spectra(sources: Sequence[str], setting: Setting, plan: Plan) -> list[dict[str, Any]]:
    """One row per graph; an "epoch" is one decomposition, and there is no floor."""
    rows = []
    for source in sources:
        with setting.stage(source, plan) as update:
            graph, _ = graph_source(source, setting.data)
            candidates = [ours(graph, setting.device), reference(graph)]
            found = measure(candidates, setting.device, plan, update, memory=False)
            more = {"nodes": graph.num_nodes, "eigenpairs": _pairs(graph)}
            rows.append(bench_row(graph.name, found, None, **more))
    return rows


def ours(graph: Graph, device: torch.device) -> Candidate:
    """Our ``decompose`` without a cache: it also checks, and never cuts an eigenspace."""

    def build() -> Runner:
        def run(times: int) -> None:
            for _ in range(times):
                decompose(graph, k=_pairs(graph), device=device)

        return run

    return Candidate("ours", build)


def reference(graph: Graph) -> Candidate:
    """ARPACK on the Laplacian's smallest eigenvalues."""

    def build() -> Runner:
        laplacian = normalised_laplacian(graph)

        def run(times: int) -> None:
            for _ in range(times):
                eigsh(laplacian, k=_pairs(graph), which="SA", tol=_TOLERANCE)

        return run

    return Candidate("reference", build)


def _pairs(graph: Graph) -> int:
    return min(PAIRS, graph.num_nodes - 1)
