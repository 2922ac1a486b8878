"""The paper's tables."""

from __future__ import annotations

from typing import Annotated

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
    spectra_folder,
    split_names,
    start_run,
)
from specformer.errors import ConfigError


def table(
    number: Annotated[int, typer.Argument(help="The paper's table: 1.")],
    images: Annotated[
        int | None, typer.Option(help="Use the first N images. (default: all)")
    ] = None,
    filters: Annotated[
        str | None, typer.Option(help="Comma-separated. (default: all five)")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Comma-separated. (default: all)")] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Specformer's recipes, comma-separated. (default: all)")
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
    from specformer.experiments.terminal import progress_bars, show_table1
    from specformer.training.environment import choose_device

    if number != 1:
        raise ConfigError(f"table {number} is not here yet; table 1 is.")
    if recorded:
        from specformer.experiments.ledger import recorded_rows, results_folder

        rows = recorded_rows(results_folder(results), number)
        if json_output:
            print_json({"table": number, "rows": rows})
        elif rows:
            show_table1(rows)
        else:
            typer.echo(f"Nothing is recorded of table {number}.")
        return
    from specformer.datasets import FILTERS
    from specformer.experiments.signal_recipe import MODELS
    from specformer.experiments.table1 import table1

    target = choose_device(device)
    refuse_taken(out)
    with progress_bars(quiet or json_output) as progress:
        result, arrays = table1(
            images=images,
            filters=split_names(filters) or tuple(FILTERS),
            models=split_names(models) or MODELS,
            recipes=split_names(recipes),
            assignments=assignments or [],
            data=data,
            cache=spectra_folder(cache),
            device=target,
            seed=seed,
            progress=progress,
        )
    config = {
        "command": "table",
        "table": number,
        "images": images,
        "filters": filters,
        "models": models,
        "recipes": recipes,
        "set": assignments or [],
        "seed": seed,
        "device": str(target),
    }
    run = start_run(out, f"table-{number}", config)
    result, report = finish_run(run, "filters", result, arrays, config)
    if json_output:
        print_json(
            {
                "table": number,
                "rows": result["rows"],
                "seconds": result["seconds"],
                "run_dir": str(run.path),
                "report": str(report),
            }
        )
        return
    show_table1(result["rows"])
    farewell(result, report)
