"""The ledger of recorded results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specformer.cli.options import Json, Results, echo, print_json, split_names

app = typer.Typer(help="The ledger of recorded results.", no_args_is_help=True)


@app.command("check")
def results_check(
    results: Results = None,
    json_output: Json = False,
) -> None:
    """Check every recorded entry, and that the tables shown are made from them."""
    from specformer.paper.results import check, entries, results_folder

    folder = results_folder(results)
    problems = check(folder)
    count = sum(1 for _ in entries(folder))
    if json_output:
        print_json({"entries": count, "problems": problems})
    else:
        for problem in problems:
            echo(problem, err=True)
        echo(f"{count} entries, {len(problems)} problems.")
    if problems:
        raise typer.Exit(1)


@app.command("tables")
def results_tables(
    results: Results = None,
    json_output: Json = False,
) -> None:
    """Rewrite the tables of README and docs from the ledger."""
    from specformer.paper.results import results_folder, write_tables

    updated = write_tables(results_folder(results))
    if json_output:
        print_json({"updated": [str(path) for path in updated]})
        return
    for path in updated:
        echo(f"updated {path}")


@app.command("add")
def results_add(
    run: Annotated[Path, typer.Argument(help="A finished run of `specformer table`.")],
    name: Annotated[
        str | None, typer.Option(help="The entry's name. (default: the folder's)")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Record only these recipes, comma-separated.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an entry of the same name.")
    ] = False,
    results: Results = None,
    json_output: Json = False,
) -> None:
    """Record a run in the ledger."""
    from specformer.paper.results import add, results_folder
    from specformer.training.runs.folder import RunFolder

    folder = results_folder(results)
    entry = add(RunFolder.open(run), folder, name, split_names(recipes), replace=replace)
    if json_output:
        print_json({"recorded": str(entry)})
    else:
        echo(f"recorded {entry}")
