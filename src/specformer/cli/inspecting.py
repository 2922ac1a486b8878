"""Commands that show data sets, sources, spectra and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from specformer.cli.options import Shared, shares
from specformer.cli.output import echo, print_json, refuse_overwriting, showing_logs
from specformer.errors import ConfigError, RunError


@shares("data", "json")
def datasets(shared: Shared) -> None:
    """List the known data sets, their sizes and where their files are."""
    from specformer.cli.terminal import show_table
    from specformer.datasets.registry import survey

    found = survey(shared.data)
    if shared.json:
        print_json({"datasets": found})
        return
    sizes = ("graphs", "signals", "nodes", "edges", "features", "classes")
    lines = [
        (
            row["name"],
            row["about"],
            *(f"{row[size]:,}" if size in row else "" for size in sizes),
            row["path"] or row["state"],
        )
        for row in found
    ]
    show_table("Data sets", ("name", "about", *sizes, "file"), lines, again=1)


@shares("data", "json", "columns")
def inspect(
    source: Annotated[str, typer.Argument(help="A graph, molecules or signals, as for `train`.")],
    shared: Shared,
) -> None:
    """Show what `train` would read: sizes, columns, classes, targets and splits."""
    from specformer.tasks.overview import in_words
    from specformer.tasks.train import inspect_source

    with showing_logs(shared.json):
        found = inspect_source(source, shared.data, shared.columns)
    if shared.json:
        print_json(found)
    else:
        echo(in_words(found))


@shares("data", "cache", "json", "quiet", "device")
def spectrum(
    source: Annotated[
        str,
        typer.Argument(
            help="A graph: the name of a data set, an .npz file, a folder with edges.csv, "
            "or a grid such as 100x100."
        ),
    ],
    shared: Shared,
    k: Annotated[
        str | None,
        typer.Option(
            help="How many eigenvalues: 50 smallest, or 50,20 for both ends. (default: all)"
        ),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="How to solve: auto, dense, chebyshev, lanczos or slepc.")
    ] = "auto",
    warm: Annotated[
        Path | None,
        typer.Option(
            help="Start from this spectrum of an earlier state of the graph (safetensors)."
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(min=1, help="slepc: how many MPI processes. (default: one per core)"),
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="slepc: list of machines, as mpirun reads it.")
    ] = None,
    isolated: Annotated[
        str, typer.Option(help="Eigenvalue of a node without edges: one or zero.")
    ] = "one",
    plot: Annotated[
        Path | None, typer.Option(help="PNG picture to write. (default: NAME-spectrum.png)")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Also save the spectrum here (safetensors). A folder, ending in /, gets shards."
        ),
    ] = None,
) -> None:
    """Compute, cache, summarise and draw the spectrum of a graph's normalised Laplacian."""
    pairs = _parsed_pair(k)
    if plot and plot.suffix.lower() != ".png":
        raise ConfigError(f"--plot {plot}: pictures are PNG files; let its name end in .png.")
    shared.begin(f"Reading {source}.")
    if out:
        refuse_overwriting(Path(out), Path(source))
    from specformer.cli.terminal import show_table
    from specformer.datasets.registry import graph_source
    from specformer.reports import numbers
    from specformer.reports.plots.spectral_plots import spectrum_plot
    from specformer.reports.plots.svg import save_png
    from specformer.spectrum import Spectrum, decompose
    from specformer.spectrum.shards import is_folder

    with shared.workplace() as place:
        graph, mirrors = graph_source(source, place.data)
        start = Spectrum.load(warm) if warm else None
        by_ranks = solver == "slepc" and bool(out) and is_folder(str(out))
        with place.progress.stage(f"decomposing {graph.name}", 100, "%") as update:
            found = decompose(
                graph,
                k=pairs,
                solver=solver,  # type: ignore[arg-type]
                isolated=isolated,  # type: ignore[arg-type]
                device=place.device,
                cache=place.cache,
                mirrors=mirrors,
                start=start,
                ranks=ranks,
                hostfile=hostfile,
                progress=lambda done, wanted: update(100 * done // wanted, 100.0 * done / wanted),
                out=out if by_ranks else None,
                nodes=slice(0, 0) if by_ranks else None,  # so that no process holds all
            )
            update(100, 100.0)
    if out and not by_ranks:
        found.save(out)
    picture = plot or Path(f"{graph.name}-spectrum.png")
    save_png(spectrum_plot(found.eigenvalues.cpu().numpy(), title=graph.name), picture)
    summary = {"name": graph.name, **found.summary(), "plot": str(picture)}
    summary["num_nodes"] = graph.num_nodes
    if out:
        summary["saved"] = out
    if shared.json:
        print_json(summary)
        return
    solved = found.report
    assert solved is not None  # decompose fills it in
    told = {
        "nodes": numbers.count(graph.num_nodes),
        "components": numbers.count(solved.components),
        "eigenpairs": numbers.count(found.num_eigenpairs),
        "distinct eigenvalues": numbers.count(summary["distinct_eigenvalues"]),
        "solver": f"{solved.solver}: {solved.reason}",
        "time": numbers.duration(solved.seconds),
        "largest residual": numbers.scientific(solved.max_residual),
        "largest orthogonality error": numbers.scientific(solved.max_orthogonality_error),
        "picture": str(picture),
        **({"saved": out} if out else {}),
    }
    show_table(graph.name, ("", ""), [(name, escape(value)) for name, value in told.items()])


def _parsed_pair(text: str | None) -> int | tuple[int, int] | None:
    """``50`` or ``50,20``, as :func:`specformer.decompose` takes k."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise ConfigError(f"--k {text}: give one number, or two with a comma between them.")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


@shares("json")
def report(
    runs: Annotated[list[Path], typer.Argument(help="The folder of a run, or several to compare.")],
    shared: Shared,
    out: Annotated[
        Path | None,
        typer.Option(help="Several runs: the HTML file to write. (default: comparison.html)"),
    ] = None,
) -> None:
    """Write the HTML report of a run again, or one that compares several runs."""
    from specformer.files import write_text
    from specformer.reports.html import render_comparison, write_report
    from specformer.training.runs.folder import RunFolder

    folders = [RunFolder.open(run) for run in runs]
    if len(folders) > 1:
        path = out or Path("comparison.html")
        refuse_overwriting(path)
        write_text(path, render_comparison(folders))
        told: dict[str, object] = {"run_dirs": [str(run) for run in runs]}
    elif out is not None:
        raise ConfigError("--out: the report of a single run goes into its folder; leave it out.")
    else:
        path = write_report(folders[0])
        told = {"run_dir": str(runs[0])}
    if shared.json:
        print_json({**told, "report": str(path)})
    else:
        echo(f"Report: {path}")


@shares("json")
def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    shared: Shared,
) -> None:
    """Check that the files of a finished run have not changed."""
    from specformer.cli.terminal import show_table
    from specformer.training.runs.folder import RunFolder

    states = RunFolder.open(run).verified()
    wrong = [name for name, state in states.items() if state != "intact"]
    if shared.json:
        print_json({"run_dir": str(run), "intact": not wrong, "files": states})
    else:
        lines = [(escape(name), state) for name, state in states.items()]
        show_table(str(run), ("file", "state"), lines)
    if wrong:
        raise RunError(f"{run}: {wrong[0]} is {states[wrong[0]]}.")
