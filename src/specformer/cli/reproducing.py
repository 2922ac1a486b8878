"""Commands that reproduce the paper: its tables and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specformer.cli.command_run import make_run
from specformer.cli.options import Shared, shares, split_names
from specformer.cli.output import echo, farewell, print_json
from specformer.errors import ConfigError, check_known

if TYPE_CHECKING:
    from specformer.paper.figures import PaperFigure, Ran
    from specformer.tasks.job import Kind, Workplace

#: The options that only some tables have, and the kind of a table's rows.
_OPTIONS = {
    1: ("images", "filters", "models"),
    2: ("datasets", "runs", "models"),
    3: ("datasets", "runs", "models", "lanes"),
    4: ("datasets", "runs"),
}
_KINDS = {1: "filters", 2: "nodes", 3: "molecules", 4: "ablations"}
#: The kind of recipes that ``--set`` changes.
_SETTINGS: dict[int, Kind] = {1: "filters", 2: "nodes", 3: "molecules", 4: "nodes"}
#: Tables that take hours, and continue from checkpoints in their folder.
_CHECKPOINTED = (3, 4)


@shares("results", "assignments", "data", "cache", "json", "quiet", "device", "seed", "out")
def table(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="Number of the paper's table: 1, 2, 3 or 4.")
    ],
    shared: Shared,
    models: Annotated[
        str | None, typer.Option(help="Tables 1 to 3: models, comma-separated. (default: all)")
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(help="Table 1: how many images, or their numbers: 19,28. (default: all)"),
    ] = None,
    filters: Annotated[
        str | None, typer.Option(help="Table 1: filters, comma-separated. (default: all five)")
    ] = None,
    recipes: Annotated[
        str | None,
        typer.Option(
            help="Recipes, comma-separated. Table 4: bare, encoding, small, medium, large. "
            "(default: all)"
        ),
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Tables 2 to 4: data sets, comma-separated. (default: all)")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Tables 2 to 4: how many runs. (default: 10)")
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(help="Table 3: how many runs train at the same time. (default: 1)")
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Show the recorded results; train nothing.")
    ] = False,
) -> None:
    """Run a table of the paper, or show its recorded results, beside the paper's numbers."""
    if not recorded:
        shared.begin(f"Starting table {name}.")
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
        of_runs = {"images": images, "runs": runs, "lanes": lanes, "set": shared.assignments}
        _refuse(of_runs, "--recorded runs nothing")
        asked = {"model": models, "recipe": recipes, "dataset": filters or datasets}
        _show_recorded(number, {key: split_names(text) for key, text in asked.items()}, shared)
        return
    from specformer.tasks.resolve import full_changes

    config: dict[str, Any] = {
        "command": "table",
        "table": number,
        "recipes": recipes,
        **{option: given[option] for option in _OPTIONS[number]},
        "set": full_changes(_SETTINGS[number], None, shared.changes),
    }
    _run_table(config, shared)


def _run_table(config: dict[str, Any], shared: Shared) -> None:
    """Run a table by its configuration, and show it."""
    from specformer.cli.terminal import show_paper_table
    from specformer.paper.table_rows import with_cited
    from specformer.paper.tables import table1, table2, table3, table4

    number: int = config["table"]
    parts: dict[str, Any] = {
        option: split_names(value) if isinstance(value := config[option], str) else value
        for option in ("recipes", *_OPTIONS[number])
    }
    lanes = parts.pop("lanes", None)
    # Options that are not given have the table's own defaults.
    settings = {option: value for option, value in parts.items() if value is not None}
    tables: list[Callable[..., Any]] = [table1, table2, table3, table4]

    def make(place: Workplace, begin: Callable[[], Path]) -> Ran:
        checkpointed = {"begin": begin} if number in _CHECKPOINTED else {}
        return tables[number - 1](
            **settings, **checkpointed, assignments=config["set"], place=place, seed=shared.seed
        )

    run, result, _, report = make_run(
        make,
        config,
        shared,
        kind=_KINDS[number],
        name=f"table-{number}",
        out=shared.out,
        lanes=lanes or 1,
    )
    rows = with_cited(number, result["rows"])
    if shared.json:
        shown = {"table": number, "rows": rows, "seconds": result["seconds"]}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    show_paper_table(number, rows)
    farewell(result, report)


def parse_images(text: str | None) -> int | list[int] | None:
    """``5`` for the first five images, ``19,28`` or ``19,`` for images by number, each once."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.rstrip(",").split(",")]
    except ValueError:
        raise ConfigError(
            f"--images {text}: give a count, or the images' numbers with a comma after each."
        ) from None
    return list(dict.fromkeys(numbers)) if "," in text else numbers[0]


def _table_number(name: str, given: Mapping[str, Any]) -> int:
    """The number of a table; refuses options that it does not have."""
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


def _refuse(given: Mapping[str, Any], why: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise ConfigError(f"--{option}: leave it out, as {why}.")


def _show_recorded(number: int, chosen: Mapping[str, Sequence[str] | None], shared: Shared) -> None:
    """Show the recorded rows of a table beside the paper's, for the chosen names."""
    from specformer.cli.terminal import show_paper_table
    from specformer.paper.recorded import recorded_rows, results_folder
    from specformer.paper.table_rows import with_cited

    rows = with_cited(number, recorded_rows(results_folder(shared.results), number))
    for key, names in chosen.items():
        if not rows or names is None:
            continue
        known = dict.fromkeys(row[key] for row in rows)
        unknown = [name for name in names if name not in known]
        if unknown:
            thing = {"dataset": "filter" if number == 1 else "data set"}.get(key, key)
            raise ConfigError(
                f"table {number}: no {thing} {', '.join(unknown)} is recorded, only "
                f"{', '.join(known)}."
            )
        rows = [row for row in rows if row[key] in names]
    if shared.json:
        print_json({"table": number, "rows": rows})
    elif rows:
        show_paper_table(number, rows)
    else:
        echo(f"Nothing is recorded of table {number}.")


@shares("assignments", "data", "cache", "device", "seed", "json", "quiet")
def figure(
    shared: Shared,
    name: Annotated[str | None, typer.Argument(help="Name of the figure; see --list.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
    run: Annotated[
        Path | None, typer.Option(help="A finished run to draw. (default: train a new one)")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for NAME.png and NAME.svg.")] = Path(),
) -> None:
    """Draw a figure of the paper as PNG and SVG, from a finished run or a new one."""
    if listed:
        from specformer.cli.terminal import show_table
        from specformer.paper.figures import FIGURES

        described = [_described(each, figure) for each, figure in FIGURES.items()]
        if shared.json:
            print_json({"figures": described})
        else:
            lines = [[str(cell) for cell in each.values()] for each in described]
            show_table("The paper's figures", ("name", "number", "shows"), lines, left=3)
        return
    if name is None:
        raise ConfigError("Name a figure; `specformer figure --list` lists them.")
    shared.begin(f"Drawing figure {name}.")
    from specformer.paper.figures import FIGURES
    from specformer.reports.plots.svg import save_mosaic
    from specformer.reports.variants import kept_arrays
    from specformer.training.runs.folder import RunFolder

    check_known("figure", FIGURES, name)
    chosen = FIGURES[name]
    if chosen.run is None:
        _refuse({"run": run, "set": shared.assignments}, f"figure {name} needs no run")
        rows = chosen.drawn({}, {})
    elif run is not None:
        if shared.assignments:
            raise ConfigError("--set: cannot change a finished run; leave out --set or --run.")
        folder = RunFolder.open(run)
        rows = chosen.drawn(folder.result(), kept_arrays(folder))
    else:
        changes, train = list(shared.changes), chosen.run
        made = make_run(
            lambda place, _: train(assignments=changes, place=place, seed=shared.seed),
            {"command": "figure", "figure": name, "set": changes},
            shared,
            kind=chosen.kind,
            name=f"figure-{name}",
            out=None,
        )
        run, rows = made.run.path, chosen.drawn(made.result, made.arrays)
    files = save_mosaic(rows, out / name, chosen.told)
    if shared.json:
        told = _described(name, chosen)
        print_json({**told, "run_dir": run and str(run), "files": [str(file) for file in files]})
        return
    echo(f"Figure {chosen.number}: {', '.join(map(str, files))}")


def _described(name: str, chosen: PaperFigure) -> dict[str, Any]:
    return {"figure": name, "number": chosen.number, "shows": chosen.told}
