"""Commands that train and predict."""

from __future__ import annotations

from pathlib import Path
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
    Seed,
    farewell,
    finish_run,
    print_json,
    refuse_taken,
    spectra_folder,
    start_run,
)


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
    config = {"command": "demo", "seed": seed, "device": str(target)}
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
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Train on your graph, or learn a filter from signals; ends with a report."""
    from specformer.experiments.terminal import progress_bars, show_filters, show_nodes
    from specformer.experiments.train_filter import is_signal_source, train_filter
    from specformer.experiments.train_nodes import save_models, train_nodes
    from specformer.training.environment import choose_device

    target = choose_device(device)
    refuse_taken(out)
    signals = is_signal_source(source)
    config = {
        "command": "train",
        "source": source,
        "model": model,
        "recipe": recipe,
        "runs": runs,
        **({"filter": filter_name} if signals else {}),
        "set": assignments or [],
        "seed": seed,
        "device": str(target),
    }
    common: dict[str, Any] = {
        "model": model,
        "assignments": assignments or [],
        "data": data,
        "cache": spectra_folder(cache),
        "device": target,
        "seed": seed,
    }
    trained: list[Any]
    with progress_bars(quiet or json_output) as progress:
        if signals:
            result, study = train_filter(
                source,
                filter_name=filter_name,
                recipe_name=recipe,
                images=runs,
                progress=progress,
                **common,
            )
            arrays, trained = study.arrays, [m for group in study.models.values() for m in group]
        else:
            count = 10 if runs is None else runs
            result, outcome = train_nodes(
                source, recipe_name=recipe, runs=count, progress=progress, **common
            )
            arrays, trained = outcome.arrays, outcome.models
    run = start_run(out, "-".join([Path(source).stem, model]), config)
    save_models(run, trained)
    result, report = finish_run(run, "filters" if signals else "nodes", result, arrays, config)
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
    from specformer.datasets import NODE_SETS, node_graph
    from specformer.datasets.locate import find_file
    from specformer.errors import DataNotFoundError
    from specformer.experiments.terminal import show_table

    found: list[dict[str, Any]] = []
    for entry in NODE_SETS.values():
        row: dict[str, Any] = {"name": entry.name, "about": entry.about, "path": None}
        try:
            row["path"] = str(find_file(f"{entry.name}.npz", data))
            graph = node_graph(entry.name, data)
            row |= {
                "nodes": graph.num_nodes,
                "edges": graph.num_edges,
                "features": graph.num_features,
                "classes": graph.num_classes,
            }
        except DataNotFoundError:
            pass
        found.append(row)
    if json_output:
        print_json({"datasets": found})
        return
    sizes = ("nodes", "edges", "features", "classes")
    lines = [
        (
            row["name"],
            row["about"],
            *(f"{row[size]:,}" if size in row else "" for size in sizes),
            row["path"] or "not found",
        )
        for row in found
    ]
    show_table("Data sets", ("name", "about", *sizes, "file"), lines)
