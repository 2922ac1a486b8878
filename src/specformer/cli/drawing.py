"""The command that draws the paper's figures."""

from __future__ import annotations

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
    Quiet,
    Seed,
    echo,
    finish_run,
    print_json,
    repeat_command,
    spectra_folder,
    start_run,
    withdrawn_if_refused,
)
from specformer.cli.waiting import first_words
from specformer.errors import ConfigError, check_known

if TYPE_CHECKING:
    from specformer.paper.figures import PaperFigure, Ran
    from specformer.training.runs.folder import RunFolder


def figure(
    name: Annotated[str | None, typer.Argument(help="Which figure; see --list.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
    run: Annotated[
        Path | None, typer.Option(help="A finished run to draw it of. (default: a fresh one)")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for NAME.png and NAME.svg. (default: this one)")
    ] = Path(),
    assignments: Assignments = None,
    data: Data = None,
    cache: Cache = None,
    device: Device = "auto",
    seed: Seed = 0,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw one of the paper's figures as PNG and SVG, of a finished run or of a fresh one."""
    if listed:
        _list(json_output)
        return
    if name is None:
        raise ConfigError("Name a figure; `specformer figure --list` lists them.")
    first_words(f"Drawing figure {name}.", quiet or json_output)
    from specformer.paper.figures import FIGURES
    from specformer.reports.plots.mosaic import save_mosaic
    from specformer.training.runs.folder import OUTPUTS, RunFolder

    check_known("figure", FIGURES, name)
    chosen = FIGURES[name]
    if chosen.run is None:
        given = {"run": run, "set": assignments}
        for option in (option for option, value in given.items() if value is not None):
            raise ConfigError(f"--{option}: figure {name} needs no run.")
        rows = chosen.drawn({}, {})
    elif run is not None:
        if assignments:
            raise ConfigError("--set: a finished run is drawn as it is; leave out --run.")
        folder = RunFolder.open(run)
        arrays = folder.outputs() if (folder.path / OUTPUTS).exists() else {}
        rows = chosen.drawn(folder.result(), arrays)
    else:
        ran, run = _fresh(name, chosen, assignments or [], data, cache, device, seed,
                          json_output or quiet)  # fmt: skip
        rows = chosen.drawn(*ran)
    files = save_mosaic(rows, out / name, chosen.told)
    if json_output:
        told: dict[str, Any] = {"figure": name, "number": chosen.number, "shows": chosen.told}
        print_json({**told, "run_dir": run and str(run), "files": [str(file) for file in files]})
        return
    echo(f"Figure {chosen.number}: {', '.join(map(str, files))}")


def _list(json_output: bool) -> None:
    from specformer.cli.terminal import show_table
    from specformer.paper.figures import FIGURES

    if json_output:
        print_json(
            {
                "figures": [
                    {"figure": name, "number": each.number, "shows": each.told}
                    for name, each in FIGURES.items()
                ]
            }
        )
        return
    rows = [(name, str(each.number), each.told) for name, each in FIGURES.items()]
    show_table("The paper's figures", ("name", "number", "shows"), rows)


def _fresh(
    name: str,
    chosen: PaperFigure,
    changes: list[str],
    data: Path | None,
    cache: Path | None,
    device: str,
    seed: int,
    quiet: bool,
) -> tuple[Ran, Path]:
    """A fresh run, kept in a folder below ``runs/``."""
    from specformer.cli.progress_display import progress_bars
    from specformer.tasks.workplace import Workplace
    from specformer.training.runs.environment import choose_device

    assert chosen.run is not None
    target = choose_device(device)
    config = {
        "command": "figure", "figure": name, "set": changes, "seed": seed, "device": str(target),
        "repeat": repeat_command(),
    }  # fmt: skip
    started: list[RunFolder] = []
    with ExitStack() as holding:
        with withdrawn_if_refused(started), progress_bars(quiet) as progress:
            started.append(start_run(None, f"figure-{name}", config, holding))
            place = Workplace(target, data, spectra_folder(cache), progress)
            result, arrays = chosen.run(changes, place, seed)
        complete, _ = finish_run(started[0], chosen.kind, dict(result), dict(arrays), config)
    return (complete, arrays), started[0].path
