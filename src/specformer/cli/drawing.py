"""The command that draws the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specformer.cli.options import Shared, shares
from specformer.cli.output import echo, print_json
from specformer.cli.run_in_hand import RunInHand, finish_run, repeat_command
from specformer.errors import ConfigError, check_known

if TYPE_CHECKING:
    from specformer.paper.figures import PaperFigure, Ran


@shares("assignments", "data", "cache", "device", "seed", "json", "quiet")
def figure(
    shared: Shared,
    name: Annotated[str | None, typer.Argument(help="Which figure; see --list.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
    run: Annotated[
        Path | None, typer.Option(help="A finished run to draw it of. (default: a fresh one)")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for NAME.png and NAME.svg. (default: this one)")
    ] = Path(),
) -> None:
    """Draw one of the paper's figures as PNG and SVG, of a finished run or of a fresh one."""
    if listed:
        _list(shared)
        return
    if name is None:
        raise ConfigError("Name a figure; `specformer figure --list` lists them.")
    shared.begin(f"Drawing figure {name}.")
    from specformer.paper.figures import FIGURES
    from specformer.reports.plots.svg import save_mosaic
    from specformer.training.runs.folder import OUTPUTS, RunFolder

    check_known("figure", FIGURES, name)
    chosen = FIGURES[name]
    if chosen.run is None:
        given = {"run": run, "set": shared.assignments}
        for option in (option for option, value in given.items() if value is not None):
            raise ConfigError(f"--{option}: figure {name} needs no run.")
        rows = chosen.drawn({}, {})
    elif run is not None:
        if shared.assignments:
            raise ConfigError("--set: a finished run is drawn as it is; leave out --run.")
        folder = RunFolder.open(run)
        arrays = folder.outputs() if (folder.path / OUTPUTS).exists() else {}
        rows = chosen.drawn(folder.result(), arrays)
    else:
        ran, run = _fresh(name, chosen, shared)
        rows = chosen.drawn(*ran)
    files = save_mosaic(rows, out / name, chosen.told)
    if shared.json:
        told = _described(name, chosen)
        print_json({**told, "run_dir": run and str(run), "files": [str(file) for file in files]})
        return
    echo(f"Figure {chosen.number}: {', '.join(map(str, files))}")


def _described(name: str, chosen: PaperFigure) -> dict[str, Any]:
    return {"figure": name, "number": chosen.number, "shows": chosen.told}


def _list(shared: Shared) -> None:
    from specformer.cli.terminal import show_table
    from specformer.paper.figures import FIGURES

    if shared.json:
        print_json({"figures": [_described(name, each) for name, each in FIGURES.items()]})
        return
    rows = [(name, str(each.number), each.told) for name, each in FIGURES.items()]
    show_table("The paper's figures", ("name", "number", "shows"), rows)


def _fresh(name: str, chosen: PaperFigure, shared: Shared) -> tuple[Ran, Path]:
    """A fresh run, kept in a folder below ``runs/``."""
    assert chosen.run is not None
    changes = list(shared.changes)
    config = {
        "command": "figure", "figure": name, "set": changes, "seed": shared.seed,
        "device": str(shared.target), "repeat": repeat_command(),
    }  # fmt: skip
    with RunInHand.new(None, f"figure-{name}", config) as hand:
        run = hand.begin()
        with shared.workplace(told=False) as place:
            result, arrays = chosen.run(changes, place, shared.seed)
        complete, _ = finish_run(run, chosen.kind, result, arrays, config)
    return (complete, arrays), run.path
