"""Comparing models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specformer.cli.options import (
    Assignments,
    Cache,
    Data,
    Device,
    Json,
    Metric,
    Quiet,
    Seed,
    Task,
    farewell,
    going_on,
    print_json,
    reading_told,
    repeat_command,
    spectra_folder,
    split_names,
)
from specformer.cli.reading import reads_columns, requested
from specformer.cli.waiting import first_words

if TYPE_CHECKING:
    from specformer.training.runs.folder import RunFolder

#: What `compare --json` prints of a result.
_SHOWN = (
    "dataset", "metric", "split", "runs", "against", "rows", "differences", "failures", "seconds",
)  # fmt: skip


@reads_columns
def compare(
    source: Annotated[str, typer.Argument(help="A graph or molecules, as `train` takes them.")],
    models: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, each perhaps with a recipe: specformer:best,gcn. "
            "(default: specformer,gcn,gat,gprgnn,mlp,chebnetii,gcnii; molecules specformer,gin,gps)"
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Search for each model's settings that long, on validation data."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Splits. (default: 10, or the file's; molecules 3)")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="The model that the others are compared with. (default: best)"),
    ] = None,
    task: Task = None,
    metric: Metric = None,
    assignments: Assignments = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write; an existing one goes on. (default: a new one in runs/)"
        ),
    ] = None,
    columns: dict[str, str] | None = None,
) -> None:
    """Compare models on the same splits: which differences hold, time, size; ends with a report."""
    first_words(f"Reading {source}.", quiet or json_output)
    from specformer.cli.progress_display import progress_bars
    from specformer.cli.terminal import show_comparison
    from specformer.tasks.compare import compare_models
    from specformer.tasks.contest import contest
    from specformer.tasks.workplace import Workplace
    from specformer.training.runs.environment import choose_device

    given = {"task": task, "metric": metric}
    target = choose_device(device)
    made = contest(
        requested(source, columns, given, changes=tuple(assignments or ())),
        split_names(models),
        seconds=seconds,
        runs=runs,
        seed=seed,
        device=str(target),
        repeat=repeat_command(),
    )
    started: list[RunFolder] = []

    def same() -> list[str]:
        if not started:
            return []
        return [*sys.argv[1:], *([] if out else ["--out", str(started[0].path)])]

    silent = quiet or json_output
    with going_on(same), progress_bars(silent) as progress, reading_told(silent):
        place = Workplace(target, data, spectra_folder(cache), progress)
        found = compare_models(made, place, out, against, started.append)
    if json_output:
        shown = {key: found.result[key] for key in _SHOWN}
        print_json({**shown, "run_dir": str(found.run_dir), "report": str(found.report)})
        return
    show_comparison(found.result)
    farewell(dict(found.result), found.report)
