"""Commands that train and predict."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specformer.cli.options import (
    Assignments,
    Cache,
    Data,
    Device,
    Json,
    Metric,
    Out,
    Quiet,
    Seed,
    Task,
    echo,
    farewell,
    finish_run,
    going_on,
    print_json,
    reading_told,
    refuse_taken,
    repeat_command,
    spectra_folder,
    start_run,
    withdrawn_if_refused,
)
from specformer.cli.reading import reads_columns, requested, told_columns
from specformer.cli.waiting import first_words
from specformer.errors import ConfigError, RunError

if TYPE_CHECKING:
    from specformer.tasks.job import Job
    from specformer.tasks.predictions import Predictions
    from specformer.training.runs.folder import RunFolder
    from specformer.training.runs.progress import Progress

#: Parts of a result that are in result.json and not in what `train --json` prints.
_HIDDEN = (
    "environment", "settings", "filters", "nodes", "molecules", "spectra", "targets", "seen",
    "feature_names", "base", "quantiles",
)  # fmt: skip


def demo(
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Learn filters on photographs and classify generated graphs; ends with a report."""
    first_words("Starting the demo.", quiet or json_output)
    from specformer.cli.progress_display import progress_bars
    from specformer.cli.terminal import show_filters, show_nodes
    from specformer.paper.demo import demo as run_demo
    from specformer.tasks.workplace import Workplace
    from specformer.training.runs.environment import choose_device

    target = choose_device(device)
    refuse_taken(out)
    config = {"command": "demo", "seed": seed, "device": str(target), "repeat": repeat_command()}
    with progress_bars(quiet or json_output) as progress:
        result, arrays = run_demo(Workplace(target, progress=progress), seed)
    with ExitStack() as holding:
        run = start_run(out, "demo", config, holding)
        result, report = finish_run(run, "demo", result, arrays, config)
    if json_output:
        shown = {key: value for key, value in result.items() if key != "environment"}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    show_filters(result["filters"])
    show_nodes(result["nodes"])
    farewell(result, report)


@reads_columns
def train(
    source: Annotated[
        str,
        typer.Argument(
            help="A graph: a data set's name, a folder with edges.csv, nodes.csv, or an .npz, "
            ".graphml, .gml, .gexf or .pt file. Molecules: zinc, molhiv, …, a .csv, .smi or .sdf "
            "file, an .npz or .pt file of many graphs. Signals: photographs, grid-images or an "
            "image file."
        ),
    ],
    model: Annotated[str, typer.Option(help="specformer, gcn, gat, gprgnn, …")] = "specformer",
    recipe: Annotated[
        str | None,
        typer.Option(
            help="paper, best, authors, default or a .yaml file; for signals paper, projected."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Splits, or images. (default: 10, or the file's; molecules 1; all images)"
        ),
    ] = None,
    task: Task = None,
    metric: Metric = None,
    lanes: Annotated[
        int | None,
        typer.Option(help="Molecules: how many runs train at the same time. (default: 1)"),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="Molecules: a finished run whose models to train further."),
    ] = None,
    filter_name: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help="Signals: low-pass, high-pass, band-pass, band-rejection or comb. (default: comb)",
        ),
    ] = None,
    assignments: Assignments = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Event files too, in the run's tensorboard/.")
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help="Compute with one thread: the same numbers on any number."
        ),
    ] = False,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
    columns: dict[str, str] | None = None,
) -> None:
    """Train on your graph, molecules or signals; ends with a report."""
    first_words(f"Reading {source}.", quiet or json_output)
    from specformer.tasks.resolve import resolve
    from specformer.tasks.source import source_name
    from specformer.training.runs.environment import choose_device

    refuse_taken(out)
    given = {"task": task, "metric": metric, "lanes": lanes, "from": start, "filter": filter_name}
    changes = tuple(assignments or ())
    job = resolve(
        requested(source, columns, given, model=model, recipe=recipe, changes=changes),
        runs,
        seed=seed,
        device=str(choose_device(device)),
        lanes=1 if lanes is None else lanes,
        tensorboard=tensorboard,
        deterministic=deterministic,
        repeat=repeat_command(),
    )
    started: list[RunFolder] = []
    holding = ExitStack()

    def begin() -> RunFolder:
        started.append(start_run(out, f"{source_name(source)}-{model}", job.config, holding))
        return started[0]

    with holding, withdrawn_if_refused(started):
        _train(job, begin, data, cache, json_output, quiet)


def resume(
    run: Annotated[
        Path, typer.Argument(help="The folder of a `specformer train` that was stopped.")
    ],
    from_scratch: Annotated[
        bool,
        typer.Option("--from-scratch", help="Discard its checkpoints and start the run over."),
    ] = False,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a stopped training run, from its last checkpoint to the same result."""
    first_words(f"Reading {run}.", quiet or json_output)
    from specformer.tasks.resolve import read_job
    from specformer.training.runs.environment import choose_device
    from specformer.training.runs.folder import REPORT, RunFolder

    stopped = RunFolder.open(run)
    if stopped.is_finished and not (stopped.path / REPORT).exists() and not from_scratch:
        _write_missing_report(stopped, json_output)
        return
    _refuse_finished(stopped)
    job = read_job(stopped)
    try:
        choose_device(job.device)
    except ConfigError:
        raise RunError(
            f"{run}: was started on {job.device}, which is not here; go on where it is."
        ) from None
    holding = ExitStack()

    def begin() -> RunFolder:  # of several workers, the first alone
        holding.enter_context(stopped.held())
        _refuse_finished(stopped)  # by another process, while this one read its data
        if from_scratch:
            stopped.discard_checkpoints()
        return stopped

    with holding:
        _train(job, begin, data, cache, json_output, quiet)


def _refuse_finished(run: RunFolder) -> None:
    if run.is_finished:
        raise RunError(f"{run.path}: the run is finished; there is nothing to go on with.")


def _write_missing_report(run: RunFolder, json_output: bool) -> None:
    """End what a run was killed in, after its result was written."""
    from specformer.reports import write_report

    with run.held():
        run.discard_checkpoints()
        _show_trained(run, run.result("kind", "seconds"), write_report(run), json_output)


def _train(
    job: Job,
    begin: Callable[[], RunFolder],
    data: Path | None,
    cache: Path | None,
    json_output: bool,
    quiet: bool,
) -> None:
    """Train as a job says; ``begin`` gives the run's folder once the input is good."""
    import torch

    from specformer.cli.progress_display import progress_bars
    from specformer.tasks.train import train as train_job
    from specformer.tasks.workplace import Workplace
    from specformer.training.engine.distributed import torchrun_workers
    from specformer.training.engine.precision import one_thread
    from specformer.training.runs.folder import REPORT
    from specformer.training.runs.progress import Recorded, Tracked, require_tensorboard, track_run

    if job.tensorboard:
        require_tensorboard()
    folders: list[RunFolder] = []

    def opened() -> RunFolder:
        folders.append(begin())
        return folders[0]

    def resuming() -> list[str]:
        whole = folders and (folders[0].path / REPORT).exists()
        return ["resume", str(folders[0].path)] if folders and not whole else []

    def kept() -> bool:
        return any(folder.has_checkpoint or folder.is_finished for folder in folders)

    with going_on(resuming, kept):
        with torchrun_workers(torch.device(job.device)) as (workers, device):
            silent = quiet or json_output or not workers.is_first
            with progress_bars(silent) as shown, reading_told(silent):
                progress: Progress = Recorded(shown, lambda: folders[0] if folders else None)
                if job.tensorboard:
                    progress = Tracked(progress, lambda: folders[0] if folders else None)
                place = Workplace(device, data, spectra_folder(cache), progress, workers, job.lanes)
                trained = train_job(job, place, opened)
            if not workers.is_first:
                return
        run = folders[0]
        run.write_models(trained.outcome.models, trained.outcome.beside)
        with one_thread(job.deterministic):  # which the result records
            result, report = finish_run(
                run, trained.kind, trained.result, trained.outcome.arrays, job.config
            )
        if job.tensorboard:
            track_run(run)
    _show_trained(run, result, report, json_output)


def _show_trained(run: RunFolder, result: dict[str, Any], report: Path, json_output: bool) -> None:
    from specformer.cli.terminal import SHOW

    if json_output:
        shown = {key: value for key, value in result.items() if key not in _HIDDEN}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    SHOW[result["kind"]](result[result["kind"]])
    farewell(result, report)


@reads_columns
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder of `specformer train`.")],
    graph: Annotated[
        str | None,
        typer.Option(
            help="Another graph with the same features, or a file of molecules. "
            "(default: the run's)"
        ),
    ] = None,
    smiles: Annotated[
        list[str] | None, typer.Option(help="A molecule; as often as you like.")
    ] = None,
    spectrum: Annotated[
        str | None, typer.Option(help="Nodes: decomposed, or density for large graphs.")
    ] = None,
    degree: Annotated[
        int | None, typer.Option(help="Nodes: degree of filters, with --spectrum density.")
    ] = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; - is stdout. (default: stdout)")
    ] = None,
    columns: dict[str, str] | None = None,
) -> None:
    """Predict with a trained model, as CSV: a row for every node, or for every molecule."""
    first_words(f"Reading {run}.", json_output)
    from specformer.errors import check_known
    from specformer.tasks.predictions import PredictionRequest
    from specformer.tasks.resolve import TASKS, refuse_foreign
    from specformer.tasks.workplace import Workplace
    from specformer.training.runs.environment import choose_device
    from specformer.training.runs.folder import RunFolder

    finished = RunFolder.open(run)
    if finished.config().get("command") == "compare":
        raise RunError(f"{run}: has several models; name the folder of one, {run / 'gcn'} say.")
    if finished.config().get("command") != "train":
        raise RunError(f"{run}: only runs of `specformer train` keep models to predict with.")
    kind = finished.result("kind")["kind"]
    check_known("kind of run", TASKS, str(kind))
    if out in (Path("-"), Path("/dev/stdout")):
        if json_output:
            raise ConfigError(f"--out {out}: standard output is taken by --json; name a file.")
        out = None
    elif json_output and out is None:
        out = finished.path / "predictions.csv"
    told = told_columns(columns or {})
    given = {"smiles": smiles, "spectrum": spectrum, "degree": degree}
    refuse_foreign(kind, str(run), given | dict.fromkeys(told.options, True))
    request = PredictionRequest(graph, smiles or (), spectrum, degree, told)
    place = Workplace(choose_device(device), data, spectra_folder(cache))
    with reading_told(json_output), finished.answering_for_files("cannot be predicted with"):
        found = TASKS[kind].predict(finished, request, place)
    _write_predictions(found, out, json_output)


def _write_predictions(found: Predictions, out: Path | None, json_output: bool) -> None:
    """Say which rows have none, and write the others to a file or to standard output."""
    from specformer.files import write_text

    for problem in found.problems:
        echo(problem, err=True)
    if out is None:
        typer.echo(found.text, nl=False)
        return
    write_text(out, found.text)
    if json_output:
        print_json({"path": str(out), "rows": found.rows})
    else:
        good, counted = found.rows - len(found.problems), f"{found.rows:,} predictions"
        if found.problems:
            counted = f"{good:,} of {found.rows:,} predicted"
        echo(f"{counted}: {out}")


def datasets(data: Data = None, json_output: Json = False) -> None:
    """List the data sets known by name, their sizes and where they were found."""
    from specformer.cli.terminal import show_table
    from specformer.datasets.registry import survey, survey_graph_sets
    from specformer.datasets.signals import survey_signals

    found = [*survey(data), *survey_graph_sets(data), *survey_signals(data)]
    if json_output:
        print_json({"datasets": found})
        return
    sizes = ("graphs", "signals", "nodes", "edges", "features", "classes")
    lines = [
        (
            row["name"],
            row["about"],
            *(f"{row[size]:,}" if size in row else "" for size in sizes),
            _whereabouts(row),
        )
        for row in found
    ]
    show_table("Data sets", ("name", "about", *sizes, "file"), lines, again=1)


def _whereabouts(row: dict[str, Any]) -> str:
    """A data set's file, else what is known of it."""
    if row["path"] is None:
        return str(row["state"])
    return str(row["path"]) if row["state"] == "found" else f"{row['state']}: {row['path']}"
