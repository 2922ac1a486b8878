"""Commands that train and predict."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specformer.cli.command_run import (
    CommandRun,
    explaining_resume,
    make_run,
    refuse_taken,
    repeat_command,
)
from specformer.cli.options import Shared, shares
from specformer.cli.output import (
    clear_line,
    echo,
    farewell,
    print_json,
    refuse_overwriting,
    showing_logs,
)
from specformer.errors import ConfigError, RunError

if TYPE_CHECKING:
    from specformer.tasks.job import Job, Workplace
    from specformer.tasks.task import Predictions
    from specformer.training.runs.folder import RunFolder
    from specformer.training.runs.progress import Progress

#: Keys of result.json that `train --json` does not print.
_HIDDEN = (
    "environment", "settings", "filters", "nodes", "links", "molecules", "spectra", "targets",
    "seen", "feature_names", "base", "quantiles",
)  # fmt: skip


@shares("json", "quiet", "device", "seed", "out")
def demo(shared: Shared) -> None:
    """Learn filters on photographs, classify nodes of random graphs, and write a report."""
    shared.begin("Starting the demo.")
    from specformer.cli.terminal import show_rows
    from specformer.paper.demo import demo as run_demo

    run, result, _, report = make_run(
        lambda place, _: run_demo(place, shared.seed),
        {"command": "demo"},
        shared,
        kind="demo",
        name="demo",
        out=shared.out,
    )
    if shared.json:
        shown = {key: value for key, value in result.items() if key != "environment"}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    show_rows("filters", result["filters"])
    show_rows("nodes", result["nodes"])
    farewell(result, report)


@shares(
    "model", "task", "metric", "assignments", "data", "cache", "json", "quiet", "device", "seed",
    "out", "columns",
)  # fmt: skip
def train(
    source: Annotated[
        str,
        typer.Argument(
            help="A graph: the name of a data set, a folder with edges.csv and nodes.csv, or an "
            ".npz, .graphml, .gml, .gexf, .json or .pt file. Molecules: zinc, molhiv, …, a .csv, "
            ".smi or .sdf file, or an .npz or .pt file of many graphs. Signals: photographs, "
            "grid-images or an image file."
        ),
    ],
    shared: Shared,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="The settings: paper, best, authors, default or a .yaml file. Signals: paper or "
            "projected. (default: decided by the source and the model)"
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="How many models to train, each on its own split or image. (default: 10, or the "
            "splits in the file; links: 5; molecules: 5, named data sets 1; signals: all images)"
        ),
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(help="Molecules: how many runs train at the same time. (default: 1)"),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="Molecules: a finished run. Its models are trained further."),
    ] = None,
    filter_name: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help="Signals: the filter to learn: low-pass, high-pass, band-pass, band-rejection or "
            "comb. (default: comb)",
        ),
    ] = None,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Also write event files to tensorboard/ in the run."),
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Compute with one thread, so that the number of threads changes nothing.",
        ),
    ] = False,
) -> None:
    """Train on a graph, molecules or signals, and write a report."""
    shared.begin(f"Reading {source}.")
    from specformer.tasks.job import source_name
    from specformer.tasks.resolve import resolve

    refuse_taken(shared.out)
    job = resolve(
        shared.request(source, recipe, start, filter_name),
        runs,
        seed=shared.seed,
        device=str(shared.target),
        lanes=lanes,
        tensorboard=tensorboard,
        deterministic=deterministic,
        repeat=repeat_command(),
    )
    name = f"{source_name(source)}-{shared.model}"
    with CommandRun.new(shared.out, name, job.config) as command:
        _train(job, command, shared)


@shares("data", "cache", "json", "quiet")
def resume(
    run: Annotated[Path, typer.Argument(help="Folder of a `specformer train` that was stopped.")],
    shared: Shared,
    from_scratch: Annotated[
        bool,
        typer.Option("--from-scratch", help="Delete its checkpoints and start again."),
    ] = False,
) -> None:
    """Continue a stopped training run from its last checkpoint; the result is the same."""
    shared.begin(f"Reading {run}.")
    from specformer.reports.html import write_report
    from specformer.tasks.job import refuse_missing
    from specformer.tasks.resolve import read_job
    from specformer.training.runs.environment import choose_device
    from specformer.training.runs.folder import REPORT, RunFolder

    stopped = RunFolder.open(run)
    if stopped.is_finished and not (stopped.path / REPORT).exists() and not from_scratch:
        with stopped.held():  # it was killed after its result was written
            stopped.discard_checkpoints()
            _show_trained(stopped, stopped.result("kind", "seconds"), write_report(stopped), shared)
        return
    _refuse_finished(stopped)
    job = read_job(stopped)
    refuse_missing(job.source, stopped.path)
    try:
        choose_device(job.device)
    except ConfigError:
        raise RunError(
            f"{run}: was started on {job.device}, which this machine lacks; resume it on one "
            "that has it."
        ) from None

    def taken_up(held: ExitStack) -> RunFolder:  # only the first of several workers calls it
        held.enter_context(stopped.held())
        _refuse_finished(stopped)  # another process may have, while this one read its data
        if from_scratch:
            stopped.discard_checkpoints()
        return stopped

    with CommandRun(taken_up, is_new=False) as command:
        _train(job, command, shared)


def _refuse_finished(run: RunFolder) -> None:
    if run.is_finished:
        raise RunError(f"{run.path}: the run is finished; there is nothing to resume.")


def _train(job: Job, command: CommandRun, shared: Shared) -> None:
    """Train a job, write its run folder and report, and show the result."""
    import torch

    from specformer.cli.progress_display import progress_bars
    from specformer.reports.html import write_report
    from specformer.tasks.job import Workplace
    from specformer.tasks.train import keep
    from specformer.tasks.train import train as train_job
    from specformer.training.engine.distributed import torchrun_workers
    from specformer.training.runs.environment import one_thread
    from specformer.training.runs.folder import REPORT
    from specformer.training.runs.progress import Recorded, Tracked, require_tensorboard, track_run

    if job.tensorboard:
        require_tensorboard()

    def resuming() -> list[str]:
        whole = command.folder is None or (command.folder.path / REPORT).exists()
        return [] if whole else ["resume", str(command.begin().path)]

    def kept() -> bool:
        return command.folder is not None and (
            command.folder.has_checkpoint or command.folder.is_finished
        )

    with explaining_resume(resuming, kept):
        with torchrun_workers(torch.device(job.device)) as (workers, device):
            silent = shared.silent or not workers.is_first
            with progress_bars(silent) as shown, showing_logs(silent):
                progress: Progress = Recorded(shown, lambda: command.folder)
                if job.tensorboard:
                    progress = Tracked(progress, lambda: command.folder)
                place = Workplace(device, shared.data, shared.spectra, progress, workers, job.lanes)
                trained = train_job(job, place, command.begin)
            if not workers.is_first:
                return
        run = command.begin()
        with one_thread(job.deterministic):  # the result records the number of threads
            result = keep(run, job, trained)
        report = write_report(run)
        if job.tensorboard:
            track_run(run)
    _show_trained(run, result, report, shared)


def _show_trained(run: RunFolder, result: dict[str, Any], report: Path, shared: Shared) -> None:
    from specformer.cli.terminal import show_rows

    if shared.json:
        shown = {key: value for key, value in result.items() if key not in _HIDDEN}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    show_rows(result["kind"], result[result["kind"]])
    farewell(result, report)


@shares("data", "cache", "json", "device", "columns")
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished `specformer train`.")],
    shared: Shared,
    graph: Annotated[
        str | None,
        typer.Option(
            help="Another graph with the same features, or a file of molecules. "
            "(default: the data of the run)"
        ),
    ] = None,
    smiles: Annotated[
        list[str] | None, typer.Option(help="A molecule, as SMILES. Repeat it for more molecules.")
    ] = None,
    spectrum: Annotated[
        str | None,
        typer.Option(help="Nodes: decomposed, or density for large graphs. (default: the run's)"),
    ] = None,
    degree: Annotated[
        int | None,
        typer.Option(
            help="Nodes: degree of the filters, with --spectrum density. (default: the run's)"
        ),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Links: a table of two columns with the pairs to score.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(help="Links: how many of the likeliest missing links. (default: 100)"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write, or - for stdout. (default: stdout)")
    ] = None,
) -> None:
    """Write predictions of a trained model as CSV: one row per node, molecule or pair of nodes."""
    shared.begin(f"Reading {run}.")
    from specformer.errors import check_known
    from specformer.tasks.job import Workplace
    from specformer.tasks.resolve import TASKS, refuse_foreign
    from specformer.tasks.resolve import predict as predictions_of
    from specformer.tasks.task import PredictionRequest
    from specformer.training.engine.distributed import torchrun_workers
    from specformer.training.runs.folder import RunFolder

    finished = RunFolder.open(run)
    if finished.config().get("command") == "compare":
        raise RunError(f"{run}: has several models; name the folder of one, such as {run / 'gcn'}.")
    if finished.config().get("command") != "train":
        raise RunError(f"{run}: only runs of `specformer train` keep models to predict with.")
    kind = finished.result("kind")["kind"]
    check_known("kind of run", TASKS, str(kind))
    if out in (Path("-"), Path("/dev/stdout")):
        if shared.json:
            raise ConfigError(f"--out {out}: standard output is taken by --json; name a file.")
        out = None
    elif shared.json and out is None:
        out = finished.path / "predictions.csv"
    if out is not None:
        source = graph or str(finished.config().get("source", run))
        refuse_overwriting(out, Path(source), pairs or run)
    told = shared.columns
    given = {"smiles": smiles, "spectrum": spectrum, "degree": degree, "pairs": pairs, "top": top}
    refuse_foreign(kind, str(run), given | dict.fromkeys(told.options, True))
    request = PredictionRequest(graph, smiles or (), spectrum, degree, told, pairs, top)
    with torchrun_workers(shared.target) as (workers, device):
        if workers.size > 1 and kind != "nodes":
            raise ConfigError(f"{run}: is not of a single graph; predict with one process.")
        place = Workplace(device, shared.data, shared.spectra, workers=workers)
        silent = shared.json or not workers.is_first
        with showing_logs(silent), finished.answering_for_files("cannot be predicted with"):
            found = predictions_of(finished, request, place)
        _write_predictions(found, out, shared.json, place)


def _write_predictions(
    found: Predictions, out: Path | None, json_output: bool, place: Workplace
) -> None:
    """Show the problems, and write the predictions to a file or to standard output.

    The first process writes; the others send it their rows.
    """
    import numpy as np

    from specformer.datasets.parts import gathered_pieces
    from specformer.files import replacing
    from specformer.training.engine.distributed import Share

    text, workers = np.frombuffer(bytearray(found.text, "utf-8"), dtype=np.uint8), place.workers
    pieces = gathered_pieces(text, Share(workers, workers.size), place.device)
    for problem in found.problems:
        echo(problem, err=True)
    if not workers.is_first:
        list(pieces)
        return
    if out is None:
        clear_line()
        for piece in pieces:
            typer.echo(bytes(piece), nl=False)
        return
    with replacing(out) as part, part.open("wb") as file:
        for piece in pieces:
            file.write(piece.data)
    if json_output:
        print_json({"path": str(out), "rows": found.rows})
    else:
        counted = f"{found.rows:,} predictions"
        if found.problems:
            counted = f"{found.rows - len(found.problems):,} of {found.rows:,} predicted"
        echo(f"{counted}: {out}")
