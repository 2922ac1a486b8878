r"""Node classification: an epoch of ours beside the plain loop and the polynomial models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from benchmarks.floor import Peaks, node_work
from benchmarks.plain_node import PlainSpecformer
from specformer.paper.timing.measure import (
    Candidate,
    Plan,
    Runner,
    Setting,
    bench_row,
    measure,
)
from specformer.paper.timing.timed_nodes import (
    RUNS,
    NodeCase,
    node_case,
    our_epochs,
    peer_epochs,
    plain_epochs,
    whole_features,
)

DATASETS = ("cora", "citeseer", "photo", "chameleon", "squirrel", "actor")
PEERS = ("gprgnn", "bernnet", "chebnetii", "jacobiconv")


def bench_nodes(
    sources: Sequence[str], setting: Setting, plan: Plan, peaks: Peaks
) -> list[dict[str, Any]]:
    """One row per graph: ours alone and ten runs together, the plain loop, the four peers."""
    rows, device = [], setting.device
    for source in sources:
        with setting.stage(source, plan) as update:
            case = node_case(source, setting)
            candidates = [
                our_epochs(case, device),
                replace(our_epochs(case, device, RUNS), name="ours10"),
                plain_nodes(case, device),
                *(peer_epochs(name, case, device) for name in PEERS),
            ]
            found = measure(candidates, device, plan, update)
            rows.append(bench_row(case.name, found, node_floor(case, peaks), **sizes(case)))
    return rows


def node_floor(case: NodeCase, peaks: Peaks) -> float:
    """The floor of one run's epoch, in the precision ours works in."""
    work = node_work(case.fresh(), case.graph, case.spectrum)
    return work.floor_ms(peaks, case.recipe.precision)


def sizes(case: NodeCase) -> dict[str, int]:
    """How large a case is."""
    return {
        "nodes": case.graph.num_nodes,
        "edges": case.graph.num_edges,
        "eigenpairs": case.spectrum.num_eigenpairs,
        "distinct_eigenvalues": len(case.spectrum.distinct.values),
    }


def plain_nodes(case: NodeCase, device: torch.device) -> Candidate:
    """The plain version of the same model in the plain loop."""

    def build() -> Runner:
        spectrum = case.spectrum.to(device)
        values, vectors = spectrum.eigenvalues, spectrum.eigenvectors
        x = torch.as_tensor(whole_features(case.graph, case.recipe)).to(device)
        model = PlainSpecformer.of(case.fresh()).to(device)
        return plain_epochs(case, device, model, lambda: model(x, values, vectors))

    return Candidate("reference", build)
