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
        str,
        typer.Argument(help="The suite: node, deep, graph, spectrum, decompose, overhead or same."),
    ] = "node",
    datasets: Annotated[
        str | None, typer.Option(help="Data sets, comma-separated. (default: those of the suite)")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Epochs or steps per repeat; in same, at most. (default: by device)"
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="How many repeats. (default: by device)")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="How many splits, in the suite same. (default: 10)")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Also record the result in this file: results/bench/NAME.json."),
    ] = None,
) -> None:
    """Measure time and memory of our models, the plain version and other models.

    The floor is the least time that this machine could take. The suite same compares results
    instead: accuracies and losses of our loop and the plain loop. The suite decompose computes
    large spectra; its data sets are written as NAME[:PAIRS[:SOLVER]].
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
    """Print the measured times and memory as tables."""
    from benchmarks.tables import bench_grids
    from specformer.cli.terminal import show_table

    for header, lines in bench_grids(result):
        cells = [[escape(cell) for cell in line] for line in lines]
        show_table(f"bench {result['suite']} · {result['device']}", header, cells, left=1)


if __name__ == "__main__":
    main(app)
