"""Commands that train many models: a search for settings and a comparison."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from specformer.cli.command_run import (
    continuing_command,
    explaining_resume,
    refuse_taken,
    repeat_command,
)
from specformer.cli.options import Shared, shares, split_names
from specformer.cli.output import echo, farewell, print_json

if TYPE_CHECKING:
    from specformer.training.runs.folder import RunFolder

_Source = Annotated[str, typer.Argument(help="A graph or molecules, as for `train`.")]
#: The keys of a result that `compare --json` prints.
_SHOWN = (
    "dataset", "metric", "split", "runs", "against", "rows", "differences", "failures", "seconds",
)  # fmt: skip


@shares(
    "model", "task", "metric", "assignments", "data", "cache", "json", "quiet", "device", "seed",
    "columns",
)  # fmt: skip
def tune(
    source: _Source,
    shared: Shared,
    recipe: Annotated[
        str | None, typer.Option(help="Start from this recipe: paper, default, … or a .yaml file.")
    ] = None,
    trials: Annotated[
        int, typer.Option(help="How many settings to try. The recipe is the first.")
    ] = 30,
    splits: Annotated[
        int | None,
        typer.Option(help="Splits that each trial trains on. (default: 3; molecules: 1)"),
    ] = None,
    finalists: Annotated[
        int, typer.Option(help="How many of the best trials to repeat on --runs splits.")
    ] = 3,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Splits that the finalists train on. (default: 10, or those in the file; "
            "links: 5; molecules: 3)"
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Start no new trial after this many seconds. (default: no limit)"),
    ] = None,
    explore: Annotated[
        int,
        typer.Option(
            help="Random trials. After these, every second trial changes one of the best."
        ),
    ] = 20,
    parameters: Annotated[
        int | None, typer.Option(help="The most parameters a model may have. (default: no limit)")
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Molecules: a finished run. Every trial starts from its models."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the search. An existing one is continued. (default: runs/tune-…)"
        ),
    ] = None,
) -> None:
    """Search for settings by validation scores, and write them as a recipe for `train`."""
    shared.begin(f"Reading {source}.")
    from specformer.paper.table_rows import plain_interval
    from specformer.tasks.job import source_name
    from specformer.tasks.resolve import resolve
    from specformer.tasks.tune import TRIALS_FILE, SearchPlan
    from specformer.tasks.tune import tune as search

    folder = out or Path("runs") / f"tune-{source_name(source)}-{shared.model}"
    refuse_taken(folder)
    request = shared.request(source, recipe, start)
    job = resolve(request, seed=shared.seed)
    plan = SearchPlan(trials, splits, finalists, runs, seconds, explore, parameters)

    def same() -> list[str]:
        return sys.argv[1:] if (folder / TRIALS_FILE).exists() else []

    with explaining_resume(same), shared.workplace() as place:
        result = search(job, plan, folder, place)
    if shared.json:
        print_json(result)
        return
    score = plain_interval({"mean": result["score"], "ci95": None})
    counted = "1 split" if result["splits"] == 1 else f"{result['splits']} splits"
    best = f"best validation {result['metric']} on {counted}, {score}"
    echo(f"Trial {result['winner']} has the {best}:")
    for change in result["set"]:
        echo(f"  {change}")
    echo(f"Recipe: {result['recipe_file']}. All trials: {result['trials_file']}.")
    words = ["specformer", "train", source, "--model", shared.model]
    words += ["--task", "links"] if request.task == "links" else []  # else the recipe says it
    words += ["--recipe", result["recipe_file"]]
    words += [] if start is None else ["--from", str(start)]
    words += request.columns.words
    echo(f"Train with:\n  {shlex.join(words)}")
    farewell(result, Path(result["report"]))


@shares(
    "task", "metric", "assignments", "data", "cache", "json", "quiet", "device", "seed", "columns"
)
def compare(
    source: _Source,
    shared: Shared,
    models: Annotated[
        str | None,
        typer.Option(
            help="Models, with a recipe or without: specformer:best,gcn. (default: specformer, "
            "gcn, gat, gprgnn, mlp, chebnetii, gcnii; molecules: specformer, gin, gps)"
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="First search for settings, this many seconds per model. (default: no search)"
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="How many splits. (default: 10, or those in the file; links: 5; molecules: 3)"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="The model that the others are compared with. (default: the best)"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write. An existing one is continued. (default: a new one in runs/)"
        ),
    ] = None,
) -> None:
    """Train several models on the same splits, and write a report that compares them."""
    shared.begin(f"Reading {source}.")
    from specformer.cli.terminal import show_table
    from specformer.reports.standings import standings, verdict
    from specformer.tasks.compare import compare_models
    from specformer.tasks.contest import contest

    made = contest(
        shared.request(source),
        split_names(models),
        seconds=seconds,
        runs=runs,
        seed=shared.seed,
        device=str(shared.target),
        repeat=repeat_command(),
    )
    begun: list[RunFolder] = []
    with (
        explaining_resume(lambda: continuing_command(begun[0] if begun else None, out)),
        shared.workplace() as place,
    ):
        found = compare_models(made, place, out, against, begun.append)
    if shared.json:
        shown = {key: found.result[key] for key in _SHOWN}
        print_json({**shown, "run_dir": str(found.run_dir), "report": str(found.report)})
        return
    header, lines = standings(found.result).as_text
    cells = [[escape(cell) for cell in line] for line in lines]
    show_table(str(found.result["title"]), header, cells)
    echo(verdict(found.result))
    farewell(dict(found.result), found.report)
