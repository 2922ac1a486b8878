"""The command line of the benchmarks: ``python -m benchmarks node --datasets cora``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from specformer.cli import main
from specformer.cli.command_run import repeat_command
from specformer.cli.options import Shared, shares, split_names
from specformer.cli.output import print_json

app = typer.Typer(name="benchmarks", add_completion=False, pretty_exceptions_enable=False)


@app.command()
@shares("data", "cache", "json", "quiet", "device")
def bench(
    shared: Shared,
    suite: Annotated[
        str, typer.Argument(help="node, deep, graph, spectrum, decompose, overhead or same.")
    ] = "node",
    datasets: Annotated[
        str | None, typer.Option(help="Comma-separated. (default: the suite's own)")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs or steps per repeat; same: at most. (default: by device)"),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Interleaved repeats. (default: by device)")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Splits of the suite same. (default: ten)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to record the result in, results/bench/NAME.json.")
    ] = None,
) -> None:
    """Measure speed and memory: ours beside the plain version, the peers, and the floor.

    The suite same compares results instead: accuracies and losses of ours and the plain loop.
    The suite decompose has large spectra, each as NAME[:PAIRS[:SOLVER]].
    """
    from benchmarks.measure import Setting
    from benchmarks.record import record
    from benchmarks.suites import bench as run

    command = f"python -m benchmarks{repeat_command().removeprefix('specformer')}"

    def keep(result: dict[str, Any]) -> None:
        if out:
            record(out, result, command, shared.target)

    with shared.workplace(told=False) as place:
        setting = Setting(place.device, place.progress, place.data, place.cache)
        cases = split_names(datasets)
        options = {"epochs": epochs, "repeats": repeats, "runs": runs}
        result = run(suite, cases, setting, **options, keep=keep)
    keep(result)
    if shared.json:
        print_json(result)
    else:
        show_bench(result)


def show_bench(result: Mapping[str, Any]) -> None:
    """Print the tables of measured speed and memory."""
    from benchmarks.tables import bench_grids
    from specformer.cli.terminal import show_table

    for header, lines in bench_grids(result):
        cells = [[escape(cell) for cell in line] for line in lines]
        show_table(f"bench {result['suite']} · {result['device']}", header, cells, left=1)


if __name__ == "__main__":
    main(app)
