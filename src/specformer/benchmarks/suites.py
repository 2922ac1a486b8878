r"""The suites of ``specformer bench`` by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from specformer.benchmarks import (
    decompose_suite,
    graph_suite,
    node_suite,
    overhead,
    same_suite,
    spectrum_suite,
)
from specformer.benchmarks.floor import Peaks, measure_peaks
from specformer.benchmarks.measure import Plan
from specformer.datasets import node_graph
from specformer.datasets.graph_source import graph_source
from specformer.errors import ConfigError, check_known
from specformer.training.runs.environment import device_name
from specformer.training.runs.progress import Progress

#: Suites and the cases they have without ``--datasets``.
SUITES: dict[str, tuple[str, ...]] = {
    "node": node_suite.DATASETS,
    "graph": graph_suite.DATASETS,
    "spectrum": spectrum_suite.DATASETS,
    "decompose": decompose_suite.CASES,
    "overhead": overhead.DATASETS,
    "same": node_suite.DATASETS,
}
#: What reads a case of a suite whose cases are single graphs.
_READ: dict[str, Callable[..., object]] = {
    "node": node_graph,
    "same": node_graph,
    "spectrum": graph_source,
}
#: Called with the result so far.
Keep = Callable[[dict[str, Any]], None]


def bench(
    suite: str,
    datasets: Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    epochs: int | None = None,
    repeats: int | None = None,
    runs: int | None = None,
    progress: Progress,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """Run a suite: ``suite``, ``device``, ``threads``, ``plan``, ``peaks`` and ``rows``.

    Args:
        suite: one of :data:`SUITES`.
        datasets: its cases; None for the suite's own.
        data: folder with data files.
        cache: folder for spectra, which the spectrum suite does not use.
        device: where all contestants run.
        epochs: epochs, steps or decompositions a repeat; None for a number that suits the device.
            In the suite ``same`` the most that a run trains; None for what the recipe says.
        repeats: interleaved repeats; None likewise. Not in the suite ``same``.
        runs: splits to train on, in the suite ``same`` alone; None for ten.
        progress: told of every round.
        keep: given the result after every row of ``same``, which takes minutes.
    """
    check_known("suite", SUITES, suite)
    _refuse_idle(suite, epochs, repeats, runs)
    cases = datasets or SUITES[suite]
    if suite in _READ:  # a case that is not there is told now, not after minutes of the others
        for case in cases:
            _READ[suite](case, data)
    if suite == "same":
        where: dict[str, Any] = {"data": data, "cache": cache, "device": device}
        return _same(
            cases, same_suite.SamePlan(runs or node_suite.RUNS, epochs), progress, keep, **where
        )
    if suite == "decompose":
        once = decompose_suite.DecomposePlan(repeats or 1)
        rows = decompose_suite.bench_decompositions(
            cases, data=data, device=device, plan=once, progress=progress
        )
        return _result(suite, device, once, None, rows)
    plan = Plan.on(device, epochs, repeats)
    if suite == "spectrum":  # one decomposition takes seconds, and none is like warming up
        plan = Plan(epochs=epochs or 1, repeats=repeats or 3, warmup=0)
    common: dict[str, Any] = {"data": data, "device": device, "plan": plan, "progress": progress}
    peaks = None
    if suite == "spectrum":
        rows = spectrum_suite.bench_spectra(cases, **common)
    else:
        peaks = measure_peaks(device)
        run = {
            "node": node_suite.bench_nodes,
            "graph": graph_suite.bench_graphs,
            "overhead": overhead.bench_overhead,
        }[suite]
        rows = run(cases, cache=cache, peaks=peaks, **common)
    return _result(suite, device, plan, peaks, rows)


def _refuse_idle(suite: str, epochs: int | None, repeats: int | None, runs: int | None) -> None:
    """Refuse an option that the suite has no use for."""
    if suite == "same" and repeats is not None:
        raise ConfigError(f"--repeats {repeats}: the suite same repeats nothing; use --runs.")
    if suite == "decompose" and epochs is not None:
        raise ConfigError(f"--epochs {epochs}: the suite decompose has none; use --repeats.")
    if suite != "same" and runs is not None:
        raise ConfigError(f"--runs {runs}: the suite {suite} has none, only same does.")


def _same(
    cases: Sequence[str],
    plan: same_suite.SamePlan,
    progress: Progress,
    keep: Keep | None,
    *,
    device: torch.device,
    **where: Any,
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    result = _result("same", device, plan, None, rows)
    for row in same_suite.bench_same(cases, device=device, plan=plan, progress=progress, **where):
        rows.append(row)
        if keep:
            keep(result)
    return result


def _result(
    suite: str,
    device: torch.device,
    plan: Plan | same_suite.SamePlan | decompose_suite.DecomposePlan,
    peaks: Peaks | None,
    rows: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "suite": suite,
        "device": device_name(device),
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        "plan": asdict(plan),
        "peaks": asdict(peaks) if peaks else None,
        "rows": rows,
    }
