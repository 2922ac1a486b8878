"""The paper's tables."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specformer.cli.options import (
    Assignments,
    Cache,
    Data,
    Device,
    Json,
    Out,
    Quiet,
    Results,
    Seed,
    farewell,
    finish_run,
    print_json,
    refuse_taken,
    repeat_command,
    spectra_folder,
    split_names,
    start_run,
)
from specformer.errors import ConfigError


def table(
    number: Annotated[int, typer.Argument(help="The paper's table: 1 or 2.")],
    models: Annotated[str | None, typer.Option(help="Comma-separated. (default: all)")] = None,
    images: Annotated[
        int | None, typer.Option(help="Table 1: the first N images. (default: all)")
    ] = None,
    filters: Annotated[
        str | None, typer.Option(help="Table 1: comma-separated. (default: all five)")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Comma-separated. (default: all there are)")
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Table 2: comma-separated. (default: the six small sets)")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Table 2: how many splits. (default: 10)")
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Show what results/ holds; run nothing.")
    ] = False,
    results: Results = None,
    assignments: Assignments = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Run one of the paper's tables, or show what is recorded of it, beside the paper's figures."""
    from specformer.experiments.terminal import progress_bars, show_paper_table
    from specformer.training.environment import choose_device

    if number not in (1, 2):
        raise ConfigError(f"table {number} is not here yet; tables 1 and 2 are.")
    if recorded:
        from specformer.experiments.ledger import recorded_rows, results_folder

        rows = recorded_rows(results_folder(results), number)
        if json_output:
            print_json({"table": number, "rows": rows})
        elif rows:
            show_paper_table(number, rows)
        else:
            typer.echo(f"Nothing is recorded of table {number}.")
        return
    choices = {1: {"images": images, "filters": filters}}
    choices[2] = {"datasets": datasets, "runs": runs}
    for option, value in choices[3 - number].items():
        if value is not None:
            raise ConfigError(f"--{option} belongs to table {3 - number}, not to table {number}.")
    target = choose_device(device)
    refuse_taken(out)
    common: dict[str, Any] = {
        "assignments": assignments or [],
        "data": data,
        "cache": spectra_folder(cache),
        "device": target,
        "seed": seed,
    }
    with progress_bars(quiet or json_output) as progress:
        if number == 1:
            from specformer.datasets import FILTERS
            from specformer.experiments.signal_recipe import MODELS
            from specformer.experiments.table1 import table1

            result, arrays = table1(
                images=images,
                filters=split_names(filters) or tuple(FILTERS),
                models=split_names(models) or MODELS,
                recipes=split_names(recipes),
                progress=progress,
                **common,
            )
        else:
            from specformer.experiments.node_recipe import NODE_MODELS
            from specformer.experiments.table2 import DATASETS, table2

            result, arrays = table2(
                datasets=split_names(datasets) or DATASETS,
                models=split_names(models) or NODE_MODELS,
                recipes=split_names(recipes),
                runs=10 if runs is None else runs,
                progress=progress,
                **common,
            )
    config = {
        "command": "table",
        "table": number,
        "models": models,
        "recipes": recipes,
        **choices[number],
        "set": assignments or [],
        "seed": seed,
        "device": str(target),
        "repeat": repeat_command(),
    }
    run = start_run(out, f"table-{number}", config)
    kind = "filters" if number == 1 else "nodes"
    result, report = finish_run(run, kind, result, arrays, config)
    if json_output:
        shown = {key: result[key] for key in ("table", "rows", "seconds")}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    show_paper_table(number, result["rows"])
    farewell(result, report)
