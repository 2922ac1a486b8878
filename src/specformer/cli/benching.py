"""Speed and memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from specformer.cli.options import (
    Cache,
    Data,
    Device,
    Json,
    Quiet,
    print_json,
    repeat_command,
    spectra_folder,
    split_names,
)


def bench(
    suite: Annotated[
        str, typer.Argument(help="node, graph, spectrum, decompose, overhead or same.")
    ] = "node",
    datasets: Annotated[
        str | None, typer.Option(help="Comma-separated. (default: the suite's own)")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs or steps a repeat; same: at most. (default: by device)"),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Interleaved repeats. (default: by device)")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Splits of the suite same. (default: ten)")
    ] = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="File to record the result in, results/bench/NAME.json.")
    ] = None,
) -> None:
    """Measure speed and memory: ours beside the plain version, the peers, and the floor.

    The suite same compares results instead: accuracies and losses of ours and the plain loop.
    The suite decompose has large spectra, each as NAME[:PAIRS[:SOLVER]].
    """
    from specformer.benchmarks.record import record
    from specformer.benchmarks.suites import bench as run
    from specformer.experiments.progress_display import progress_bars
    from specformer.training.environment import choose_device

    target = choose_device(device)

    def keep(result: dict[str, Any]) -> None:
        if out:
            record(out, result, repeat_command(), target)

    with progress_bars(quiet or json_output) as progress:
        result = run(
            suite,
            split_names(datasets),
            data=data,
            cache=spectra_folder(cache),
            device=target,
            epochs=epochs,
            repeats=repeats,
            runs=runs,
            progress=progress,
            keep=keep,
        )
    keep(result)
    if json_output:
        print_json(result)
        return
    show_bench(result)


def show_bench(result: Mapping[str, Any]) -> None:
    """Print the tables of a suite's result."""
    from rich.markup import escape

    from specformer.experiments.bench_tables import bench_grids
    from specformer.experiments.terminal import show_table

    for header, lines in bench_grids(result):
        cells = [[escape(cell) for cell in line] for line in lines]
        show_table(f"bench {result['suite']} · {result['device']}", header, cells, left=1)
