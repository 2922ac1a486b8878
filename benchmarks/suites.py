r"""The suites of ``make bench`` by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import (
    decompose_suite,
    graph_suite,
    node_suite,
    overhead_suite,
    same_suite,
    spectrum_suite,
)
from benchmarks.floor import measure_peaks
from benchmarks.measure import Plan, Setting
from benchmarks.node_suite import RUNS
from benchmarks.record import bench_result
from specformer.datasets import node_graph
from specformer.datasets.registry import graph_source
from specformer.errors import ConfigError, check_known

#: Suites, and their cases without ``--datasets``.
SUITES: dict[str, tuple[str, ...]] = {
    "node": node_suite.DATASETS,
    "deep": node_suite.DEEP_DATASETS,
    "graph": graph_suite.DATASETS,
    "spectrum": spectrum_suite.DATASETS,
    "decompose": decompose_suite.CASES,
    "overhead": overhead_suite.DATASETS,
    "same": node_suite.DATASETS,
}
#: Functions that read a case, for suites whose cases are single graphs.
_READ: dict[str, Callable[..., object]] = {
    "node": node_graph,
    "deep": node_graph,
    "same": node_graph,
    "spectrum": graph_source,
}
#: Called with the result so far.
Keep = Callable[[dict[str, Any]], None]


def bench(
    suite: str,
    cases: Sequence[str] | None,
    setting: Setting,
    *,
    epochs: int | None = None,
    repeats: int | None = None,
    runs: int | None = None,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """Run a suite: ``suite``, ``device``, ``threads``, ``plan``, ``peaks`` and ``rows``.

    Args:
        suite: one of :data:`SUITES`.
        cases: what to measure; None for the suite's own cases.
        setting: where to measure; the spectrum suite uses no cache.
        epochs: epochs, steps or decompositions per repeat; None for a default by device. In the
            suite ``same``, the most epochs of a run; None for those of the recipe.
        repeats: interleaved repeats; None for a default by device. Not in the suite ``same``.
        runs: splits to train on, only in the suite ``same``; None for ten.
        keep: called with the result after every row of ``same``, because a row takes minutes.
    """
    check_known("suite", SUITES, suite)
    _refuse_idle(suite, epochs, repeats, runs)
    cases, device = cases or SUITES[suite], setting.device
    if suite in _READ:  # report a missing case now, not after minutes of work
        for case in cases:
            _READ[suite](case, setting.data)
    if suite == "same":
        return _same(cases, setting, same_suite.SamePlan(runs or RUNS, epochs), keep)
    if suite == "decompose":
        once = decompose_suite.DecomposePlan(repeats or 1)
        rows = decompose_suite.bench_decompositions(cases, setting, once)
        return bench_result(suite, device, once, rows)
    if suite == "spectrum":  # a decomposition takes seconds and needs no warm-up
        plan = Plan(epochs=epochs or 1, repeats=repeats or 3, warmup=0)
        rows = spectrum_suite.bench_spectra(cases, setting, plan)
        return bench_result(suite, device, plan, rows)
    plan, peaks = Plan.on(device, epochs, repeats), measure_peaks(device)
    run = {
        "node": node_suite.bench_nodes,
        "deep": node_suite.bench_deep,
        "graph": graph_suite.bench_graphs,
        "overhead": overhead_suite.bench_overhead,
    }[suite]
    return bench_result(suite, device, plan, run(cases, setting, plan, peaks), peaks)


def _refuse_idle(suite: str, epochs: int | None, repeats: int | None, runs: int | None) -> None:
    """Refuse an option that the suite does not use."""
    if suite == "same" and repeats is not None:
        raise ConfigError(f"--repeats {repeats}: the suite same repeats nothing; use --runs.")
    if suite == "decompose" and epochs is not None:
        raise ConfigError(f"--epochs {epochs}: the suite decompose has none; use --repeats.")
    if suite != "same" and runs is not None:
        raise ConfigError(f"--runs {runs}: the suite {suite} has none, only same does.")


def _same(
    cases: Sequence[str], setting: Setting, plan: same_suite.SamePlan, keep: Keep | None
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    result = bench_result("same", setting.device, plan, rows)
    for row in same_suite.bench_same(cases, setting, plan):
        rows.append(row)
        if keep:
            keep(result)
    return result
