"""Commands that train and predict."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import UnionType
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
    Seed,
    farewell,
    finish_run,
    first_words,
    going_on,
    print_json,
    refuse_taken,
    repeat_command,
    spectra_folder,
    start_run,
    withdrawn_if_refused,
)
from specformer.errors import ConfigError, RunError

if TYPE_CHECKING:
    from specformer.experiments.predictions import Predictions
    from specformer.training.run_folder import RunFolder

#: Parts of a result that are in result.json and not in what `train --json` prints.
_HIDDEN = (
    "environment", "settings", "filters", "nodes", "molecules", "spectra", "targets", "seen",
    "feature_names",
)  # fmt: skip

#: What a run's configuration must say for it to go on, and of what type.
_NEEDED: dict[str, type | UnionType] = {
    "source": str,
    "model": str,
    "recipe": str | None,
    "runs": int | None,
    "set": list,
    "seed": int,
    "device": str,
    "repeat": str,
}


def demo(
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Learn filters on photographs and classify generated graphs; ends with a report."""
    first_words("Starting the demo.", quiet or json_output)
    from specformer.experiments.demo import demo as run_demo
    from specformer.experiments.progress_display import progress_bars
    from specformer.experiments.terminal import show_filters, show_nodes
    from specformer.training.environment import choose_device

    target = choose_device(device)
    refuse_taken(out)
    config = {"command": "demo", "seed": seed, "device": str(target), "repeat": repeat_command()}
    with progress_bars(quiet or json_output) as progress:
        result, arrays = run_demo(device=target, seed=seed, progress=progress)
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


def train(
    source: Annotated[
        str,
        typer.Argument(
            help="A graph: a data set's name, an .npz file, a folder with edges.csv, nodes.csv. "
            "Molecules: zinc, molhiv, …, a .csv file with SMILES, an .npz file of many graphs. "
            "Signals: photographs, grid-images or an image file."
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
    task: Annotated[
        str | None,
        typer.Option(help="Molecules: regression or classification. (default: by the targets)"),
    ] = None,
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
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Train on your graph, molecules or signals; ends with a report."""
    first_words(f"Reading {source}.", quiet or json_output)
    from specformer.experiments.source_kind import KINDS, source_kind, source_name
    from specformer.experiments.training_job import RUNS, full_changes, job_settings
    from specformer.training.environment import choose_device

    refuse_taken(out)
    kind = source_kind(source)
    for option, value in (("task", task), ("lanes", lanes), ("from", start)):
        if value is not None and kind != "molecules":
            raise ConfigError(f"`--{option}` applies to molecules only; {source} is {KINDS[kind]}.")
    if filter_name is not None and kind != "filters":
        raise ConfigError(f"`--filter` applies to signals only; {source} is {KINDS[kind]}.")
    own: dict[str, dict[str, Any]] = {
        "filters": {"filter": filter_name or "comb"},
        "molecules": {
            "task": _checked_task(task),
            "lanes": 1 if lanes is None else lanes,
            **({} if start is None else {"start": str(start)}),
        },
    }
    config: dict[str, Any] = {
        "command": "train",
        "source": source,
        "model": model,
        "recipe": recipe,
        "runs": RUNS[kind] if runs is None else runs,
        **own.get(kind, {}),
        "set": full_changes(kind, model, assignments or []),
        "seed": seed,
        "device": str(choose_device(device)),
        **({"tensorboard": True} if tensorboard else {}),
        "repeat": repeat_command(),
    }
    config["settings"] = job_settings(config)
    started: list[RunFolder] = []
    holding = ExitStack()

    def begin() -> RunFolder:
        started.append(start_run(out, f"{source_name(source)}-{model}", config, holding))
        return started[0]

    with holding, withdrawn_if_refused(started):
        _train(config, begin, data, cache, json_output, quiet)


def _checked_task(task: str | None) -> str | None:
    if task not in (None, "regression", "classification"):
        raise ConfigError(f"--task {task}: choose regression or classification.")
    return task


def resume(
    run: Annotated[
        Path, typer.Argument(help="The folder of a `specformer train` that was stopped.")
    ],
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a stopped training run, from its last checkpoint to the same result."""
    first_words(f"Reading {run}.", quiet or json_output)
    from specformer.training.environment import choose_device
    from specformer.training.run_folder import CONFIG, RunFolder

    stopped = RunFolder.open(run)
    if stopped.is_finished:
        raise RunError(f"{run}: the run is finished; there is nothing to go on with.")
    config = stopped.config()
    if config.get("command") != "train":
        raise RunError(f"{run}: only runs of `specformer train` can be resumed.")
    for key, kind in _NEEDED.items():
        if key not in config:
            raise RunError(f"{run / CONFIG}: damaged ({key} is missing).")
        if not isinstance(config[key], kind):
            raise RunError(f"{run / CONFIG}: damaged ({key} is {config[key]!r}).")
    try:
        choose_device(config["device"])
    except ConfigError:
        raise RunError(
            f"{run}: was started on {config['device']}, which is not here; go on where it is."
        ) from None
    holding = ExitStack()

    def begin() -> RunFolder:  # of several workers, the first alone
        holding.enter_context(stopped.held())
        return stopped

    with holding:
        _train(config, begin, data, cache, json_output, quiet)


def _train(
    config: dict[str, Any],
    begin: Callable[[], RunFolder],
    data: Path | None,
    cache: Path | None,
    json_output: bool,
    quiet: bool,
) -> None:
    """Train as a run's configuration says; ``begin`` gives its folder once the input is good."""
    import torch

    from specformer.experiments.progress_display import progress_bars
    from specformer.experiments.terminal import SHOW
    from specformer.experiments.training_job import train_source
    from specformer.training.distributed import torchrun_workers
    from specformer.training.tracking import Tracked, require_tensorboard, track_run

    tracked = config.get("tensorboard", False)
    if tracked:
        require_tensorboard()
    folders: list[RunFolder] = []

    def opened() -> RunFolder:
        folders.append(begin())
        return folders[0]

    def resuming() -> list[str]:
        return ["resume", str(folders[0].path)] if folders else []

    with torchrun_workers(torch.device(config["device"])) as (workers, device):
        silent = quiet or json_output or not workers.is_first
        with going_on(resuming), progress_bars(silent) as shown_progress:
            progress = shown_progress
            if tracked:
                progress = Tracked(shown_progress, lambda: folders[0] if folders else None)
            trained = train_source(
                config,
                data=data,
                cache=spectra_folder(cache),
                device=device,
                progress=progress,
                begin=opened,
                workers=workers,
            )
        if not workers.is_first:
            return
    run = folders[0]
    trained.save(run)
    result, report = finish_run(run, trained.kind, trained.result, trained.arrays, config)
    if tracked:
        track_run(run)
    if json_output:
        shown = {key: value for key, value in result.items() if key not in _HIDDEN}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    SHOW[trained.kind](result[trained.kind])
    farewell(result, report)


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
) -> None:
    """Predict with a trained model, as CSV: a row for every node, or for every molecule."""
    from specformer.experiments.predict_molecules import predict_molecules
    from specformer.experiments.predict_nodes import predict as predict_nodes
    from specformer.training.environment import choose_device
    from specformer.training.run_folder import RunFolder

    finished = RunFolder.open(run)
    if finished.config().get("command") != "train":
        raise RunError(f"{run}: only runs of `specformer train` keep models to predict with.")
    if out == Path("-"):
        if json_output:
            raise ConfigError("--out -: standard output is taken by --json; name a file.")
        out = None
    elif json_output and out is None:
        out = finished.path / "predictions.csv"
    common: dict[str, Any] = {"graph": graph, "data": data, "device": choose_device(device)}
    if finished.result().get("kind") == "molecules":
        if smiles and graph:
            raise ConfigError("`--smiles` and `--graph`: use only one of them.")
        if spectrum or degree:
            raise ConfigError(
                f"`--spectrum` and `--degree` apply to single graphs only; {run} was trained on "
                "molecules."
            )
        # A handful of molecules is solved faster than looked up; a file may come again.
        folder = None if smiles else spectra_folder(cache)
        found = predict_molecules(finished, smiles=smiles or (), cache=folder, **common)
    else:
        if smiles:
            raise ConfigError(
                f"`--smiles` applies to molecules only; {run} was trained on a single graph."
            )
        found = predict_nodes(
            finished, cache=spectra_folder(cache), spectrum=spectrum, degree=degree, **common
        )
    _write_predictions(found, out, json_output)


def _write_predictions(found: Predictions, out: Path | None, json_output: bool) -> None:
    """Say which rows have none, and write the others to a file or to standard output."""
    from specformer.files import write_text

    for problem in found.problems:
        typer.echo(problem, err=True)
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
        typer.echo(f"{counted}: {out}")


def datasets(data: Data = None, json_output: Json = False) -> None:
    """List the data sets known by name, their sizes and where they were found."""
    from specformer.datasets.graph_registry import survey_graph_sets
    from specformer.datasets.registry import survey
    from specformer.datasets.signal_registry import survey_signals
    from specformer.experiments.terminal import show_table

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
