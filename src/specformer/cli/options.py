"""Options and habits the commands share."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specformer.errors import ConfigError, SpecformerError

if TYPE_CHECKING:
    import numpy as np

    from specformer.training.runs.folder import RunFolder

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything drawn at random.")
]
Task = Annotated[
    str | None,
    typer.Option(help="Nodes, molecules: regression or classification. (default: by the labels)"),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Nodes, molecules: accuracy, f1, rocauc, ap; rmse, mae, r2. (default: by the task)"
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with data files. (default: $SPECFORMER_DATA, then data/)"),
]
Out = Annotated[
    Path | None, typer.Option(help="Run folder to write. (default: a new one in runs/)")
]
Cache = Annotated[Path | None, typer.Option(help="Folder for spectra. (default: below ~/.cache)")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a recipe's setting; as often as you like."
    ),
]
Results = Annotated[Path | None, typer.Option(help="The ledger's folder. (default: results/)")]
#: Rooms that tell what they make of data, and what tells where a run goes on.
_TELLING = ("graphs", "datasets", "tasks.nodes.spectral_distance", "training.runs.checkpoint")
#: Where runs go that nobody named a folder for.
_RUNS = "runs"


def checked_task(task: str | None) -> str | None:
    """Refuse a task that there is none of."""
    if task not in (None, "regression", "classification"):
        raise ConfigError(f"--task {task}: choose regression or classification.")
    return task


def printable(text: str) -> str:
    r"""Text without what moves a cursor or changes colours: names of files may hold anything.

    Example:
        >>> print(printable("run\x1b[31m\n\u202egpj"))
        run\x1b[31m
        \u202egpj
    """
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
        for letter in text
    )


def echo(text: str, err: bool = False) -> None:
    """A line for people, on standard output or on standard error."""
    typer.echo(printable(text), err=err)


def spectra_folder(folder: Path | None) -> Path:
    """The cache of spectra: a folder of choice, else the user's cache."""
    from specformer.files import user_cache

    return folder or user_cache("spectra")


def split_names(text: str | None) -> list[str] | None:
    """``a,b`` as a list, each name once; None where no name is given."""
    names = (name.strip() for name in (text or "").split(","))
    return list(dict.fromkeys(name for name in names if name)) or None


def parse_pair(text: str | None) -> int | tuple[int, int] | None:
    """``50`` or ``50,20``, as :func:`specformer.decompose` takes k."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise ConfigError(f"--k {text}: expected a number, or two with a comma between them.")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def parse_images(text: str | None) -> int | list[int] | None:
    """``5``, how many, or ``19,28``, which ones; a comma makes a single one of these, ``19,``.

    No image counts twice.
    """
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.rstrip(",").split(",")]
    except ValueError:
        raise ConfigError(
            f"--images {text}: expected how many, or numbers with a comma after each."
        ) from None
    return list(dict.fromkeys(numbers)) if "," in text else numbers[0]


def refuse_taken(out: Path | None) -> None:
    """Refuse, before any work is done, a folder that no run can be written to."""
    from specformer.training.runs.folder import RunFolder

    if out:
        RunFolder(out).refuse_taken()
    else:
        RunFolder(_RUNS).refuse_unwritable()


def start_run(out: Path | None, name: str, config: dict[str, Any], holding: ExitStack) -> RunFolder:
    """A run in ``out``, else in a new folder below ``runs/``, for this process alone."""
    from specformer.training.runs.folder import RunFolder

    if out:
        holding.enter_context(RunFolder(out).held())
        return RunFolder.create(out, config)
    run = RunFolder.fresh(_RUNS, name, config)
    holding.enter_context(run.held())
    return run


@contextmanager
def withdrawn_if_refused(started: Sequence[RunFolder]) -> Iterator[None]:
    """Leave no folder of a run where what was asked for cannot be."""
    try:
        yield
    except SpecformerError:
        for run in started:
            run.withdraw()
        raise


class _ToStderr(logging.Handler):
    """Writes messages as they are, each once, to whatever standard error is then."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._told:  # several models are trained on the same data
            self._told.add(text)
            echo(text, err=True)


@contextmanager
def reading_told(silent: bool) -> Iterator[None]:
    """Let what is read, guessed and chosen about data be said on standard error, unless silent."""
    rooms = [] if silent else [logging.getLogger(f"specformer.{room}") for room in _TELLING]
    handler = _ToStderr()
    before = [room.level for room in rooms]
    for room in rooms:
        room.addHandler(handler)
        room.setLevel(logging.INFO)
    try:
        yield
    finally:
        for room, level in zip(rooms, before, strict=True):
            room.removeHandler(handler)
            room.setLevel(level)


class Ended(SystemExit):
    """A signal asks the process to end; the status is 128 and its number, as in a shell."""


@contextmanager
def going_on(
    command: Callable[[], Sequence[str]], kept: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Say how to go on with what a signal stops, or that it starts over where nothing was kept.

    No words where there is nothing to go on with.
    """
    try:
        yield
    except (KeyboardInterrupt, Ended):
        if words := command():
            how = "Go on with" if kept() else "Nothing was kept yet; start over with"
            echo(f"Stopped. {how}: {shlex.join(['specformer', *words])}", err=True)
        raise


def finish_run(
    run: RunFolder,
    kind: str,
    result: dict[str, Any],
    arrays: dict[str, np.ndarray],
    config: dict[str, Any],
) -> tuple[dict[str, Any], Path]:
    """Write a run's files and its report."""
    import torch

    from specformer.reports import write_report

    complete = run.finish(
        kind,
        result,
        arrays,
        command=config["repeat"],
        seed=config["seed"],
        device=torch.device(config["device"]),
    )
    return complete, write_report(run)


def repeat_command() -> str:
    """The command being run, in the form that repeats it anywhere."""
    from specformer.training.runs.environment import portable_command

    return portable_command(sys.argv[1:])


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    typer.echo(json.dumps(content, allow_nan=False))


def farewell(result: dict[str, Any], report: Path) -> None:
    """The last line of a command that wrote a report."""
    echo(f"Finished in {result['seconds']:.0f} s. Report: {report}")
