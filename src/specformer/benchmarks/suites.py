r"""The suites of ``specformer bench`` by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from specformer.benchmarks import graph_suite, node_suite, overhead, spectrum_suite
from specformer.benchmarks.floor import measure_peaks
from specformer.benchmarks.measure import Plan
from specformer.errors import ConfigError
from specformer.training.environment import device_name
from specformer.training.progress import Progress

#: Suites and the cases they have without ``--datasets``.
SUITES: dict[str, tuple[str, ...]] = {
    "node": node_suite.DATASETS,
    "graph": graph_suite.DATASETS,
    "spectrum": spectrum_suite.DATASETS,
    "overhead": overhead.DATASETS,
}


def bench(
    suite: str,
    datasets: Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    epochs: int | None = None,
    repeats: int | None = None,
    progress: Progress,
) -> dict[str, Any]:
    """Run a suite: ``suite``, ``device``, ``threads``, ``plan``, ``peaks`` and ``rows``.

    Args:
        suite: one of :data:`SUITES`.
        datasets: its cases; None for the suite's own.
        data: folder with data files.
        cache: folder for spectra, which the spectrum suite does not use.
        device: where all contestants run.
        epochs: epochs, steps or decompositions a repeat; None for a number that suits the device.
        repeats: interleaved repeats; None likewise.
        progress: told of every round.
    """
    if suite not in SUITES:
        raise ConfigError(f"unknown suite {suite!r}; choose from {', '.join(SUITES)}.")
    cases = datasets or SUITES[suite]
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
    return {
        "suite": suite,
        "device": device_name(device),
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        "plan": asdict(plan),
        "peaks": asdict(peaks) if peaks else None,
        "rows": rows,
    }
