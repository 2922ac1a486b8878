"""Commands that train and predict."""

from __future__ import annotations

from collections.abc import Callable
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
    Seed,
    farewell,
    finish_run,
    print_json,
    refuse_taken,
    repeat_command,
    spectra_folder,
    start_run,
)

if TYPE_CHECKING:
    from specformer.training.run_folder import RunFolder


def demo(
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Learn filters on photographs and classify generated graphs; ends with a report."""
    from specformer.experiments.demo import demo as run_demo
    from specformer.experiments.terminal import progress_bars, show_filters, show_nodes
    from specformer.training.environment import choose_device

    target = choose_device(device)
    config = {
        "command": "demo",
        "seed": seed,
        "device": str(target),
        "repeat": repeat_command(),
    }
    run = start_run(out, "demo", config)
    with progress_bars(quiet or json_output) as progress:
        result, arrays = run_demo(device=target, seed=seed, progress=progress)
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
            "Signals: photographs, grid-images or an image file."
        ),
    ],
    model: Annotated[str, typer.Option(help="specformer, gcn, gat, gprgnn, …")] = "specformer",
    recipe: Annotated[
        str | None, typer.Option(help="paper, default; for signals paper, projected.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Splits, or images. (default: 10, or all)")
    ] = None,
    filter_name: Annotated[
        str,
        typer.Option(
            "--filter", help="Signals: low-pass, high-pass, band-pass, band-rejection or comb."
        ),
    ] = "comb",
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
    """Train on your graph, or learn a filter from signals; ends with a report."""
    from specformer.experiments.train_filter import is_signal_source
    from specformer.training.environment import choose_device

    refuse_taken(out)
    signals = is_signal_source(source)
    config = {
        "command": "train",
        "source": source,
        "model": model,
        "recipe": recipe,
        "runs": runs if signals or runs is not None else 10,
        **({"filter": filter_name} if signals else {}),
        "set": assignments or [],
        "seed": seed,
        "device": str(choose_device(device)),
        **({"tensorboard": True} if tensorboard else {}),
        "repeat": repeat_command(),
    }
    name = "-".join([Path(source).stem, model])
    _train(config, lambda: start_run(out, name, config), data, cache, json_output, quiet)


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
    from specformer.errors import RunError
    from specformer.training.run_folder import RunFolder

    stopped = RunFolder.open(run)
    stopped.refuse_taken()
    config = stopped.config()
    if config.get("command") != "train":
        raise RunError(f"{run}: only runs of `specformer train` can be resumed.")
    _train(config, lambda: stopped, data, cache, json_output, quiet)


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

    from specformer.experiments.terminal import progress_bars, show_filters, show_nodes
    from specformer.experiments.train_filter import train_filter
    from specformer.experiments.train_nodes import save_models, train_nodes
    from specformer.training.run_folder import CHECKPOINT
    from specformer.training.tracking import Tracked, require_tensorboard, track_run

    tracked = config.get("tensorboard", False)
    if tracked:
        require_tensorboard()
    common: dict[str, Any] = {
        "model": config["model"],
        "recipe_name": config["recipe"],
        "assignments": config["set"],
        "data": data,
        "cache": spectra_folder(cache),
        "device": torch.device(config["device"]),
        "seed": config["seed"],
    }
    signals = "filter" in config
    folders: list[RunFolder] = []

    def checkpoint() -> Path:
        folders.append(begin())
        return folders[0].path / CHECKPOINT

    trained: list[Any]
    with progress_bars(quiet or json_output) as shown_progress:
        progress = shown_progress
        if tracked:
            progress = Tracked(shown_progress, lambda: folders[0] if folders else None)
        if signals:
            result, study = train_filter(
                config["source"],
                filter_name=config["filter"],
                images=config["runs"],
                progress=progress,
                **common,
            )
            folders.append(begin())
            arrays, trained = study.arrays, [m for group in study.models.values() for m in group]
        else:
            result, outcome = train_nodes(
                config["source"], runs=config["runs"], begin=checkpoint, progress=progress, **common
            )
            arrays, trained = outcome.arrays, outcome.models
    run = folders[0]
    save_models(run, trained)
    result, report = finish_run(run, "filters" if signals else "nodes", result, arrays, config)
    if tracked:
        track_run(run)
    if json_output:
        hidden = ("environment", "settings", "filters", "nodes", "spectra", "classes")
        shown = {key: value for key, value in result.items() if key not in hidden}
        print_json({**shown, "run_dir": str(run.path), "report": str(report)})
        return
    if signals:
        show_filters(result["filters"])
    else:
        show_nodes(result["nodes"])
    farewell(result, report)


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder of `specformer train`.")],
    graph: Annotated[
        str | None, typer.Option(help="Another graph with the same features. (default: the run's)")
    ] = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="CSV file to write. (default: stdout)")] = None,
) -> None:
    """Predict with a trained model: id, class and probabilities of every node, as CSV."""
    from specformer.experiments.train_nodes import predict as predict_rows
    from specformer.files import write_text
    from specformer.training.environment import choose_device
    from specformer.training.run_folder import RunFolder

    finished = RunFolder.open(run)
    if json_output and out is None:
        out = finished.path / "predictions.csv"
    text, rows = predict_rows(
        finished, graph=graph, data=data, cache=spectra_folder(cache), device=choose_device(device)
    )
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text)
    if json_output:
        print_json({"path": str(out), "rows": rows})
    else:
        typer.echo(f"{rows:,} predictions: {out}")


def datasets(data: Data = None, json_output: Json = False) -> None:
    """List the data sets known by name, their sizes and where they were found."""
    from specformer.datasets.registry import survey
    from specformer.experiments.terminal import show_table

    found = survey(data)
    if json_output:
        print_json({"datasets": found})
        return
    sizes = ("nodes", "edges", "features", "classes")
    lines = [
        (
            row["name"],
            row["about"],
            *(f"{row[size]:,}" if size in row else "" for size in sizes),
            _whereabouts(row),
        )
        for row in found
    ]
    show_table("Data sets", ("name", "about", *sizes, "file"), lines)


def _whereabouts(row: dict[str, Any]) -> str:
    """A data set's file, else what is known of it."""
    if row["path"] is None:
        return str(row["state"])
    return str(row["path"]) if row["state"] == "found" else f"{row['state']}: {row['path']}"
