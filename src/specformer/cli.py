"""The command line: a thin layer over :mod:`specformer.experiments` and the rooms below it.

Results go to standard output, progress and logs to standard error. Heavy packages are imported by
the command that needs them, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specformer import __version__
from specformer.errors import ConfigError, SpecformerError

if TYPE_CHECKING:
    import torch

    from specformer.training.progress import Progress, Update

app = typer.Typer(
    name="specformer",
    help="Learn set-to-set spectral filters on graphs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
results_app = typer.Typer(help="The ledger of recorded results.", no_args_is_help=True)
app.add_typer(results_app, name="results")

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Seed = Annotated[int, typer.Option(help="Seed of everything drawn at random.")]
Data = Annotated[Path | None, typer.Option(help="Folder with data files.")]
Out = Annotated[
    Path | None, typer.Option(help="Run folder to write. [default: a new one in runs/]")
]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for spectra. [default: ~/.cache/specformer]")
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a recipe's setting.")
]


def main() -> None:
    """Run the command line; an error a user can cause is one sentence and exit status 2."""
    try:
        app()
    except SpecformerError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"specformer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del version


@app.command()
def demo(
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Learn filters on photographs and classify generated graphs; ends with a report."""
    from specformer.experiments.demo import demo as run_demo
    from specformer.reports import write_report

    target = _device(device)
    run = _start_run(out, "demo", {"command": "demo", "seed": seed, "device": str(target)})
    with _progress(quiet or json_output) as progress:
        result, arrays = run_demo(device=target, seed=seed, progress=progress)
    result = _finish_run(run, "demo", result, arrays, target, seed)
    report = write_report(run)
    if json_output:
        _print_json({**_without_values(result), "run_dir": str(run.path), "report": str(report)})
        return
    _print_filters(result["filters"])
    _print_nodes(result["nodes"])
    typer.echo(f"Finished in {result['seconds']:.0f} s. Report: {report}")


@app.command()
def train(
    source: Annotated[
        str, typer.Argument(help="photographs, grid-images, or an image file of your own.")
    ],
    model: Annotated[
        str, typer.Option(help="specformer, or a baseline of Table 1.")
    ] = "specformer",
    filter_name: Annotated[
        str, typer.Option("--filter", help="low-pass, high-pass, band-pass, band-rejection, comb.")
    ] = "comb",
    recipe: Annotated[str, typer.Option(help="paper or projected.")] = "projected",
    runs: Annotated[int | None, typer.Option(help="Use the first N images. [default: all]")] = None,
    assignments: Assignments = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Learn a spectral filter from signals and their filtered versions."""
    from specformer.experiments.train_filter import is_signal_source, train_filter
    from specformer.reports import write_report

    if not is_signal_source(source):
        raise ConfigError(
            f"{source}: unknown source; choose photographs, grid-images or an image file."
        )
    target = _device(device)
    config = {
        "command": "train",
        "source": source,
        "model": model,
        "filter": filter_name,
        "recipe": recipe,
        "runs": runs,
        "set": assignments or [],
        "seed": seed,
        "device": str(target),
    }
    name = f"{Path(source).stem}-{filter_name}-{model}"
    with _progress(quiet or json_output) as progress:
        result, study = train_filter(
            source,
            filter_name=filter_name,
            model=model,
            recipe_name=recipe,
            assignments=assignments or [],
            images=runs,
            data=data,
            cache=_cache(cache),
            device=target,
            seed=seed,
            progress=progress,
        )
    run = _start_run(out, name, config)
    for models in study.models.values():
        for number, trained in enumerate(models):
            trained.save_pretrained(run.path / "model" / f"{number:03d}")
    result = _finish_run(run, "filters", result, study.arrays, target, seed)
    report = write_report(run)
    if json_output:
        keys = ("dataset", "filter", "model", "recipe", "runs", "metric", "test", "val", "r2")
        shown = {key: result[key] for key in (*keys, "parameters", "seconds")}
        _print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    _print_filters(result["filters"])
    typer.echo(f"Finished in {result['seconds']:.0f} s. Report: {report}")


@app.command()
def table(
    number: Annotated[int, typer.Argument(help="The paper's table: 1.")],
    images: Annotated[
        int | None, typer.Option(help="Use the first N images. [default: all]")
    ] = None,
    filters: Annotated[
        str | None, typer.Option(help="Comma-separated. [default: all five]")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Comma-separated. [default: all]")] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Specformer's recipes, comma-separated. [default: all]")
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Show what results/ holds; run nothing.")
    ] = False,
    results: Annotated[Path | None, typer.Option(help="The ledger's folder.")] = None,
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
    if number != 1:
        raise ConfigError(f"table {number} is not here yet; table 1 is.")
    if recorded:
        from specformer.experiments.ledger import recorded_rows, results_folder

        rows = recorded_rows(results_folder(results), number)
        if json_output:
            _print_json({"table": number, "rows": rows})
        else:
            _print_table1(rows)
        return
    from specformer.datasets import FILTERS
    from specformer.experiments.signal_recipe import MODELS
    from specformer.experiments.table1 import table1

    target = _device(device)
    with _progress(quiet or json_output) as progress:
        result, arrays = table1(
            images=images,
            filters=_names(filters) or tuple(FILTERS),
            models=_names(models) or MODELS,
            recipes=_names(recipes),
            assignments=assignments or [],
            data=data,
            cache=_cache(cache),
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
    run = _start_run(out, f"table-{number}", config)
    result = _finish_run(run, "filters", result, arrays, target, seed)
    from specformer.reports import write_report

    report = write_report(run)
    if json_output:
        _print_json(
            {
                "table": number,
                "rows": result["rows"],
                "seconds": result["seconds"],
                "run_dir": str(run.path),
                "report": str(report),
            }
        )
        return
    _print_table1(result["rows"])
    typer.echo(f"Finished in {result['seconds']:.0f} s. Report: {report}")


@app.command()
def spectrum(
    source: Annotated[
        str,
        typer.Argument(help="A graph: .npz file, folder with edges.csv, or a grid like 100x100."),
    ],
    k: Annotated[
        str | None,
        typer.Option(help="How many pairs: 50 smallest, or 50,20 for both ends. [default: all]"),
    ] = None,
    solver: Annotated[str, typer.Option(help="auto, dense or lanczos.")] = "auto",
    isolated: Annotated[
        str, typer.Option(help="Eigenvalue of a node without edges: one or zero.")
    ] = "one",
    plot: Annotated[
        Path | None, typer.Option(help="Picture to write. [default: NAME-spectrum.png]")
    ] = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Also save the spectrum here (safetensors).")
    ] = None,
) -> None:
    """Decompose a graph's normalised Laplacian, cache it, print a summary and draw it."""
    from specformer.experiments.graph_source import graph_source
    from specformer.reports.plots import save_png, spectrum_plot
    from specformer.spectrum import decompose

    graph, mirrors = graph_source(source)
    with (
        _progress(quiet or json_output) as progress,
        progress.stage(f"decomposing {graph.name}", 1, "done") as update,
    ):
        found = decompose(
            graph,
            k=_pair(k),
            solver=solver,  # type: ignore[arg-type]
            isolated=isolated,  # type: ignore[arg-type]
            device=_device(device),
            cache=_cache(cache),
            mirrors=mirrors,
        )
        update(1, 1.0)
    picture = plot or Path(f"{graph.name}-spectrum.png")
    save_png(spectrum_plot(found.eigenvalues.cpu().numpy()), picture)
    summary = {"name": graph.name, **found.summary(), "plot": str(picture)}
    if out:
        found.save(out)
        summary["saved"] = str(out)
    if json_output:
        _print_json(summary)
        return
    from rich.table import Table

    shown = Table(title=f"Spectrum of {graph.name}", show_header=False)
    for key, value in summary.items():
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        shown.add_row(key.replace("_", " "), text)
    _stdout().print(shown)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")], json_output: Json = False
) -> None:
    """Write a run's HTML report anew."""
    from specformer.reports import write_report
    from specformer.training.run_folder import RunFolder

    path = write_report(RunFolder.open(run))
    if json_output:
        _print_json({"run_dir": str(run), "report": str(path)})
    else:
        typer.echo(f"Report: {path}")


@results_app.command("check")
def results_check(
    results: Annotated[Path | None, typer.Option(help="The ledger's folder.")] = None,
    json_output: Json = False,
) -> None:
    """Check every recorded entry, and that the tables shown are made from them."""
    from specformer.experiments.ledger import check, entries, results_folder

    folder = results_folder(results)
    problems = check(folder)
    count = sum(1 for _ in entries(folder))
    if json_output:
        _print_json({"entries": count, "problems": problems})
    else:
        for problem in problems:
            typer.echo(problem, err=True)
        typer.echo(f"{count} entries, {len(problems)} problems.")
    if problems:
        raise typer.Exit(1)


@results_app.command("tables")
def results_tables(
    results: Annotated[Path | None, typer.Option(help="The ledger's folder.")] = None,
) -> None:
    """Rewrite the tables of README and docs from the ledger."""
    from specformer.experiments.ledger import results_folder, write_tables

    for path in write_tables(results_folder(results)):
        typer.echo(f"updated {path}")


@results_app.command("add")
def results_add(
    run: Annotated[Path, typer.Argument(help="A finished run of `specformer table`.")],
    name: Annotated[
        str | None, typer.Option(help="The entry's name. [default: the folder's]")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Record only these recipes, comma-separated.")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="The ledger's folder.")] = None,
) -> None:
    """Record a run in the ledger."""
    from specformer.experiments.ledger import add, results_folder
    from specformer.training.run_folder import RunFolder

    typer.echo(
        f"recorded {add(RunFolder.open(run), results_folder(results), name, _names(recipes))}"
    )


# --- behind the commands --------------------------------------------------------------------


def _device(name: str) -> torch.device:
    from specformer.training.environment import choose_device

    return choose_device(name)


def _cache(folder: Path | None) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return folder or Path(base) / "specformer" / "spectra"


def _names(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


def _pair(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise ConfigError(f"--k {text}: expected a number, or two with a comma between them.")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def _start_run(out: Path | None, name: str, config: dict[str, Any]) -> Any:
    from specformer.training.run_folder import RunFolder

    return RunFolder.create(out, config) if out else RunFolder.fresh("runs", name, config)


def _finish_run(
    run: Any, kind: str, result: dict[str, Any], arrays: Any, device: torch.device, seed: int
) -> dict[str, Any]:
    """Add what every result carries, and write the run's files, ``result.json`` last."""
    from specformer.training.environment import environment
    from specformer.training.run_folder import portable_command

    complete = {
        "kind": kind,
        **result,
        "command": portable_command(sys.argv[1:]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "environment": environment(device),
    }
    run.write_metrics(
        {key: row[key] for key in row if key not in ("formula", "description")}
        for row in (*result.get("filters", ()), *result.get("nodes", ()))
    )
    run.write_outputs(arrays)
    run.write_result(complete)
    return complete


def _without_values(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "environment"}


def _print_json(content: dict[str, Any]) -> None:
    typer.echo(json.dumps(content, allow_nan=False))


def _stdout() -> Any:
    from rich.console import Console

    # Piped output has no width of its own; a table cut to 80 columns would lose figures.
    return Console() if sys.stdout.isatty() else Console(width=160)


def _print_table1(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from specformer.experiments.tables import table_grid

    if not rows:
        typer.echo("Nothing is recorded of this table.")
        return
    header, cells, bold = table_grid(rows)
    shown = Table(title="Table 1 · mean SSE (R²) \\[paper's SSE]")
    for column, name in enumerate(header):
        shown.add_column(name, justify="left" if column == 0 else "right")
    for line, strong in zip(cells, bold, strict=True):
        safe = [cell.replace("[", "\\[") for cell in line]
        shown.add_row(*(f"[bold]{c}[/bold]" if i in strong else c for i, c in enumerate(safe)))
    _stdout().print(shown)


def _print_filters(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from specformer.experiments.tables import display_name, figure, r2_figure

    shown = Table(title="Learned filters")
    for name in ("filter", "model", "parameters", "SSE", "R²", "epochs", "seconds"):
        shown.add_column(name, justify="left" if name in ("filter", "model") else "right")
    for row in rows:
        shown.add_row(
            row["filter"],
            display_name(row["model"]),
            f"{row['parameters']:,}",
            figure(row["sse"]["mean"]),
            r2_figure(row["r2"]["mean"]),
            f"{row['epochs']:.0f}",
            f"{row['seconds']:.1f}",
        )
    _stdout().print(shown)


def _print_nodes(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from specformer.experiments.tables import display_name

    shown = Table(title="Node classification")
    for name in ("data", "model", "parameters", "test accuracy", "epochs", "seconds"):
        shown.add_column(name, justify="left" if name in ("data", "model") else "right")
    for row in rows:
        test = row["test"]
        shown.add_row(
            row["dataset"],
            display_name(row["model"]),
            f"{row['parameters']:,}",
            f"{100 * test['mean']:.1f} ± {100 * test['ci95']:.1f} %",
            f"{row['epochs']:.0f}",
            f"{row['seconds']:.1f}",
        )
    _stdout().print(shown)


@contextmanager
def _progress(silent: bool) -> Iterator[Progress]:
    """Bars on standard error; nothing at all when silent."""
    from specformer.training.progress import Silent

    if silent:
        yield Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figure]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:

        class Shown:
            @contextmanager
            def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
                task = bars.add_task(label, total=total, figure="")

                def update(done: int, figure: float) -> None:
                    bars.update(task, completed=done, figure=f"{unit} {figure:.3g}")

                yield update
                # Early stopping ends a stage before its last epoch.
                bars.update(task, total=bars.tasks[task].completed or 1)

        yield Shown()
