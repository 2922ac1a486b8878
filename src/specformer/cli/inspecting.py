"""Commands that look: at a source, at a spectrum, at a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from specformer.cli.options import (
    Cache,
    Data,
    Device,
    Json,
    Quiet,
    echo,
    parse_pair,
    print_json,
    reading_told,
    spectra_folder,
)
from specformer.cli.reading import reads_columns, told_columns
from specformer.cli.waiting import first_words
from specformer.errors import ConfigError, RunError


@reads_columns
def inspect(
    source: Annotated[
        str, typer.Argument(help="What `train` takes: a graph, molecules or signals.")
    ],
    data: Data = None,
    json_output: Json = False,
    columns: dict[str, str] | None = None,
) -> None:
    """Say what `train` would read of a source: sizes, columns, classes, targets, splits."""
    from specformer.tasks.inspect_source import inspect_source
    from specformer.tasks.overview import in_words
    from specformer.tasks.resolve import refuse_foreign
    from specformer.tasks.source import source_kind

    told = told_columns(columns or {})
    refuse_foreign(source_kind(source, told), source, dict.fromkeys(told.options, True))
    with reading_told(json_output):
        found = inspect_source(source, data, told)
    if json_output:
        print_json(found)
    else:
        echo(in_words(found))


def spectrum(
    source: Annotated[
        str,
        typer.Argument(
            help="A graph: a data set's name, an .npz file, a folder with edges.csv, "
            "or a grid like 100x100."
        ),
    ],
    k: Annotated[
        str | None,
        typer.Option(help="How many pairs: 50 smallest, or 50,20 for both ends. (default: all)"),
    ] = None,
    solver: Annotated[str, typer.Option(help="auto, dense, chebyshev, lanczos or slepc.")] = "auto",
    warm: Annotated[
        Path | None,
        typer.Option(help="Spectrum of an earlier state of the graph to start from (safetensors)."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="MPI processes for slepc. (default: one per core)")
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="Machines for slepc, as mpirun reads them.")
    ] = None,
    isolated: Annotated[
        str, typer.Option(help="Eigenvalue of a node without edges: one or zero.")
    ] = "one",
    plot: Annotated[
        Path | None, typer.Option(help="Picture to write. (default: NAME-spectrum.png)")
    ] = None,
    data: Data = None,
    cache: Cache = None,
    json_output: Json = False,
    quiet: Quiet = False,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Also save the spectrum here (safetensors).")
    ] = None,
) -> None:
    """Decompose a graph's normalised Laplacian, cache it, print a summary and draw it."""
    pairs = parse_pair(k)
    if plot and plot.suffix.lower() != ".png":
        raise ConfigError(f"--plot {plot}: pictures are PNG files; let its name end in .png.")
    first_words(f"Reading {source}.", quiet or json_output)
    from specformer.cli.progress_display import progress_bars
    from specformer.cli.terminal import show_table
    from specformer.datasets.registry import graph_source
    from specformer.reports.plots.spectral_plots import save_png, spectrum_plot
    from specformer.spectrum import Spectrum, decompose
    from specformer.training.runs.environment import choose_device

    target = choose_device(device)
    with reading_told(quiet or json_output):
        graph, mirrors = graph_source(source, data)
    start = Spectrum.load(warm) if warm else None
    with (
        progress_bars(quiet or json_output) as progress,
        progress.stage(f"decomposing {graph.name}", 100, "%") as update,
    ):
        found = decompose(
            graph,
            k=pairs,
            solver=solver,  # type: ignore[arg-type]
            isolated=isolated,  # type: ignore[arg-type]
            device=target,
            cache=spectra_folder(cache),
            mirrors=mirrors,
            start=start,
            ranks=ranks,
            hostfile=hostfile,
            progress=lambda done, wanted: update(100 * done // wanted, 100.0 * done / wanted),
        )
        update(100, 100.0)
    if out:
        found.save(out)
    picture = plot or Path(f"{graph.name}-spectrum.png")
    save_png(spectrum_plot(found.eigenvalues.cpu().numpy(), title=graph.name), picture)
    summary = {"name": graph.name, **found.summary(), "plot": str(picture)}
    if out:
        summary["saved"] = str(out)
    if json_output:
        print_json(summary)
        return
    lines = [
        (key.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else escape(str(value)))
        for key, value in summary.items()
    ]
    show_table("Spectrum", ("", ""), lines)


def report(
    runs: Annotated[list[Path], typer.Argument(help="A run folder, or several to compare.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Several runs: the page to write. (default: comparison.html)"),
    ] = None,
    json_output: Json = False,
) -> None:
    """Write a run's HTML report anew, or lay several runs side by side."""
    from specformer.reports import write_comparison, write_report
    from specformer.training.runs.folder import RunFolder

    folders = [RunFolder.open(run) for run in runs]
    if len(folders) > 1:
        path = write_comparison(folders, out or Path("comparison.html"))
        told: dict[str, object] = {"run_dirs": [str(run) for run in runs]}
    elif out is not None:
        raise ConfigError("--out: a single run has its report in its folder; leave it out.")
    else:
        path = write_report(folders[0])
        told = {"run_dir": str(runs[0])}
    if json_output:
        print_json({**told, "report": str(path)})
    else:
        echo(f"Report: {path}")


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    json_output: Json = False,
) -> None:
    """Say which files of a finished run are as it wrote them."""
    from specformer.cli.terminal import show_table
    from specformer.training.runs.folder import RunFolder

    states = RunFolder.open(run).verified()
    wrong = [name for name, state in states.items() if state != "intact"]
    if json_output:
        print_json({"run_dir": str(run), "intact": not wrong, "files": states})
    else:
        lines = [(escape(name), state) for name, state in states.items()]
        show_table(str(run), ("file", ""), lines)
    if wrong:
        raise RunError(f"{run}: {wrong[0]} is {states[wrong[0]]}.")
