"""The paper's tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    echo,
    farewell,
    finish_run,
    going_on,
    parse_images,
    print_json,
    refuse_taken,
    repeat_command,
    spectra_folder,
    split_names,
    start_run,
    withdrawn_if_refused,
)
from specformer.cli.waiting import first_words
from specformer.errors import ConfigError

if TYPE_CHECKING:
    from specformer.tasks.source import Kind
    from specformer.training.runs.folder import RunFolder

#: The options that only some tables have, and what a table's runs are called.
_OPTIONS = {
    1: ("images", "filters", "models"),
    2: ("datasets", "runs", "models"),
    3: ("datasets", "runs", "models", "lanes"),
    4: ("datasets", "runs"),
}
_KINDS = {1: "filters", 2: "nodes", 3: "molecules", 4: "ablations"}
#: Whose recipes a table's runs have.
_SETTINGS: dict[int, Kind] = {1: "filters", 2: "nodes", 3: "molecules", 4: "nodes"}
#: Those that take hours, and go on from checkpoints in their folder.
_CHECKPOINTED = (3, 4)


def table(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The paper's: 1, 2, 3 or 4.")],
    models: Annotated[
        str | None, typer.Option(help="Tables 1 to 3: comma-separated. (default: all)")
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(help="Table 1: the first N images, or some by number: 19,28. (default: all)"),
    ] = None,
    filters: Annotated[
        str | None, typer.Option(help="Table 1: comma-separated. (default: all five)")
    ] = None,
    recipes: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated; table 4: bare, encoding, small, medium, large. (default: all)"
        ),
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Tables 2 to 4: comma-separated. (default: all)")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Tables 2 to 4: how many runs. (default: 10)")
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(help="Table 3: how many runs train at the same time. (default: 1)")
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
    if not recorded:
        first_words(f"Starting table {name}.", quiet or json_output)
    from specformer.tasks.resolve import full_changes
    from specformer.training.runs.environment import choose_device

    given = {
        "images": parse_images(images),
        "filters": filters,
        "datasets": datasets,
        "runs": runs,
        "models": models,
        "lanes": lanes,
    }
    number = _table_number(name, given)
    if recorded:
        of_runs = {"images": images, "runs": runs, "lanes": lanes, "set": assignments}
        _refuse_given(of_runs, "--recorded shows what was measured, as it was")
        asked = {"model": models, "recipe": recipes, "dataset": filters or datasets}
        chosen = {key: split_names(text) for key, text in asked.items()}
        _show_recorded(number, _recorded(number, results, chosen), json_output)
        return
    target = choose_device(device)
    refuse_taken(out)
    config: dict[str, Any] = {
        "command": "table",
        "table": number,
        "recipes": recipes,
        **{option: given[option] for option in _OPTIONS[number]},
        "set": full_changes(_SETTINGS[number], None, assignments or []),
        "seed": seed,
        "device": str(target),
        "repeat": repeat_command(),
    }
    _run_table(config, out, data, cache, json_output, quiet)


def _run_table(
    config: dict[str, Any],
    out: Path | None,
    data: Path | None,
    cache: Path | None,
    json_output: bool,
    quiet: bool,
) -> None:
    """Run a table as a configuration says, and show it."""
    import torch

    from specformer.cli.progress_display import progress_bars
    from specformer.cli.terminal import show_paper_table
    from specformer.paper.table_rows import with_cited
    from specformer.tasks.workplace import Workplace

    number: int = config["table"]
    started: list[RunFolder] = []
    holding = ExitStack()

    def begin() -> RunFolder:
        if not started:
            started.append(start_run(out, f"table-{number}", config, holding))
        return started[0]

    def same() -> list[str]:
        if not started:
            return []
        return [*sys.argv[1:], *([] if out else ["--out", str(started[0].path)])]

    parts: dict[str, Any] = {
        option: split_names(value) if isinstance(value := config[option], str) else value
        for option in ("recipes", *_OPTIONS[number])
    }
    lanes = parts.pop("lanes", None)
    # What is not given is left to the table's own defaults.
    settings = {option: value for option, value in parts.items() if value is not None}
    if number in _CHECKPOINTED:
        settings["begin"] = lambda: begin().path
    table_of = getattr(import_module(f"specformer.paper.table{number}"), f"table{number}")
    with holding:
        with (
            withdrawn_if_refused(started),
            going_on(same),
            progress_bars(quiet or json_output) as progress,
        ):
            result, arrays = table_of(
                **settings,
                assignments=config["set"],
                place=Workplace(
                    torch.device(config["device"]),
                    data,
                    spectra_folder(cache),
                    progress,
                    lanes=lanes or 1,
                ),
                seed=config["seed"],
            )
        run = begin()
        result, report = finish_run(run, _KINDS[number], result, arrays, config)
    rows = with_cited(number, result["rows"])
    if json_output:
        shown = {"table": number, "rows": rows, "seconds": result["seconds"]}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    show_paper_table(number, rows)
    farewell(result, report)


def _table_number(name: str, given: Mapping[str, Any]) -> int:
    """The table of that name, unless it does not have all options that are given."""
    if name not in map(str, _OPTIONS):
        raise ConfigError(
            f"table {name} does not exist; choose 1, 2, 3 or 4. The overhead tables are "
            "`make bench SUITE=overhead` in a checkout."
        )
    for option, value in given.items():
        if value is not None and option not in _OPTIONS[int(name)]:
            *most, last = (str(n) for n, options in _OPTIONS.items() if option in options)
            homes = f"tables {', '.join(most)} and {last}" if most else f"table {last}"
            raise ConfigError(f"`--{option}` applies to {homes} only, not to table {name}.")
    return int(name)


def _refuse_given(options: Mapping[str, Any], why: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise ConfigError(f"--{option}: {why}.")


def _show_recorded(number: int, rows: Sequence[dict[str, Any]], json_output: bool) -> None:
    from specformer.cli.terminal import show_paper_table

    if json_output:
        print_json({"table": number, "rows": rows})
    elif rows:
        show_paper_table(number, rows)
    else:
        echo(f"Nothing is recorded of table {number}.")


def _recorded(
    number: int, results: Path | None, chosen: Mapping[str, Sequence[str] | None]
) -> list[dict[str, Any]]:
    """The recorded rows of a table and the paper's own, those of some models and data sets."""
    from specformer.paper.results import recorded_rows, results_folder
    from specformer.paper.table_rows import with_cited

    rows = with_cited(number, recorded_rows(results_folder(results), number))
    for key, names in chosen.items():
        if not rows or names is None:
            continue
        known = dict.fromkeys(row[key] for row in rows)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ConfigError(
                f"table {number}: no {key} {', '.join(unknown)} is recorded, only "
                f"{', '.join(known)}."
            )
        rows = [row for row in rows if row[key] in names]
    return rows
