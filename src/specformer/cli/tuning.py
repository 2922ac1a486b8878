"""Searching for settings."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

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
    echo,
    going_on,
    print_json,
    reading_told,
    refuse_taken,
    spectra_folder,
)
from specformer.cli.reading import reads_columns, requested
from specformer.cli.waiting import first_words


@reads_columns
def tune(
    source: Annotated[
        str,
        typer.Argument(help="A graph or molecules, as `train` takes them."),
    ],
    model: Annotated[str, typer.Option(help="specformer, gcn, gat, gprgnn, …")] = "specformer",
    recipe: Annotated[
        str | None, typer.Option(help="Where to start: paper, default, … or a .yaml file.")
    ] = None,
    task: Task = None,
    metric: Metric = None,
    trials: Annotated[int, typer.Option(help="Settings to try, the recipe's own first.")] = 30,
    splits: Annotated[
        int | None, typer.Option(help="Splits a trial trains on. (default: 3; molecules 1)")
    ] = None,
    finalists: Annotated[int, typer.Option(help="Trials to repeat on every split.")] = 3,
    runs: Annotated[
        int | None, typer.Option(help="Splits the finalists train on. (default: 10; molecules 3)")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Begin no other trial after this long.")
    ] = None,
    explore: Annotated[
        int, typer.Option(help="Trials before every second one changes one of the best.")
    ] = 20,
    parameters: Annotated[
        int | None, typer.Option(help="The most parameters a model may have.")
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Molecules: a finished run whose models every trial starts from."
        ),
    ] = None,
    assignments: Assignments = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the search; an existing one goes on. (default: runs/tune-…)"),
    ] = None,
    columns: dict[str, str] | None = None,
) -> None:
    """Search for settings on validation data; writes a recipe that train --recipe takes."""
    first_words(f"Reading {source}.", quiet or json_output)
    from specformer.cli.progress_display import progress_bars
    from specformer.paper.table_rows import plain_interval
    from specformer.tasks.resolve import resolve
    from specformer.tasks.search import TRIALS
    from specformer.tasks.source import source_name
    from specformer.tasks.tune import SearchPlan
    from specformer.tasks.tune import tune as search
    from specformer.tasks.workplace import Workplace
    from specformer.training.runs.environment import choose_device

    folder = out or Path("runs") / f"tune-{source_name(source)}-{model}"
    refuse_taken(folder)
    given = {"task": task, "metric": metric, "from": start}
    changes = tuple(assignments or ())
    request = requested(source, columns, given, model=model, recipe=recipe, changes=changes)
    job = resolve(request, seed=seed)
    plan = SearchPlan(trials, splits, finalists, runs, seconds, explore, parameters)

    def same() -> list[str]:
        return sys.argv[1:] if (folder / TRIALS).exists() else []

    silent = quiet or json_output
    with going_on(same), progress_bars(silent) as progress, reading_told(silent):
        place = Workplace(choose_device(device), data, spectra_folder(cache), progress)
        result = search(job, plan, folder, place)
    if json_output:
        print_json(result)
        return
    score = plain_interval({"mean": result["score"], "ci95": None})
    counted = "1 split" if result["splits"] == 1 else f"{result['splits']} splits"
    best = f"best validation {result['metric']} on {counted}, {score}"
    echo(f"Trial {result['winner']} has the {best}:")
    for change in result["set"]:
        echo(f"  {change}")
    echo(f"Recipe: {result['recipe_file']}. All trials: {result['trials_file']}.")
    words = ["specformer", "train", source, "--model", model, "--recipe", result["recipe_file"]]
    words += [] if start is None else ["--from", str(start)]
    words += request.columns.words
    echo(f"Finished in {result['seconds']:.0f} s. Train with: {shlex.join(words)}")
