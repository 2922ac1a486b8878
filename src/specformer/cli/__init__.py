"""The command line: a thin layer over :mod:`specformer.tasks` and :mod:`specformer.paper`.

Results go to standard output, progress and logs to standard error. Heavy packages are imported by
the command that needs them, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer, current_thread, main_thread
from types import FrameType
from typing import Annotated, Any

import typer

from specformer import __version__
from specformer.cli import inspecting, learning, reproducing, searching
from specformer.cli.command_run import Ended
from specformer.cli.output import echo, heartbeat
from specformer.errors import ConfigError, SpecformerError, system_sentence

app = typer.Typer(
    name="specformer",
    help="Train Specformer, a graph model that learns spectral filters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
#: PyTorch's messages for too little memory on a GPU or the host, and the amount asked for.
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
_ASKED_FOR = re.compile(r"(?:allocate|for) ([\d.,]+ ?(?:[KMGTP]i?B|bytes))")
for command in (
    learning.demo,
    learning.train,
    learning.resume,
    learning.predict,
    inspecting.datasets,
    inspecting.inspect,
    searching.tune,
    searching.compare,
    reproducing.table,
    reproducing.figure,
    inspecting.spectrum,
    inspecting.report,
    inspecting.verify,
):
    app.command()(command)


def main(program: typer.Typer = app) -> None:
    """Run a command line; an error that a user can cause is one sentence and exit status 2."""
    _open_standard_streams()
    try:
        _refuse_undecodable(sys.argv[1:])
        with _ending_in_order(), heartbeat():
            program()
    except BrokenPipeError:  # the reader, for example `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (SpecformerError, OSError, MemoryError, RuntimeError) as error:
        if (sentence := _sentence(error)) is None:
            raise
        echo(f"Error: {sentence}", err=True)
        sys.exit(2)


def _sentence(error: Exception) -> str | None:
    """What is wrong and what to do, in one sentence; None for an error in the program.

    PyTorch has a class for a GPU's memory; for the host's it raises a ``RuntimeError``.
    """
    text = str(error)
    if isinstance(error, SpecformerError):
        return text
    if isinstance(error, OSError):
        return system_sentence(error)
    if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(text):
        return None
    asked = _ASKED_FOR.search(text)
    missing = f" for {asked[1].removesuffix('.')} more" if asked else ""
    return f"not enough memory{missing}; free some, or ask for less."


def _open_standard_streams() -> None:
    r"""Open closed streams (``>&-``), and let every character be written.

    Characters that the encoding of standard output lacks are written as ``\xb1``, as on standard
    error: a run of hours must not fail because of a character in its table.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, without partial files or processes.

    Signals that are already ignored, for example under ``nohup``, stay ignored. A second signal
    ends the command at once; so does the first one in a process of torchrun, because that waits
    for the others.
    """

    def end(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):  # a moment later
            later = Timer(0.05, os.kill, (os.getpid(), number))
            later.daemon = True
            later.start()
        elif number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            raise Ended(128 + number)

    alone = "WORLD_SIZE" not in os.environ and current_thread() is main_thread()
    asked = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    usual |= dict.fromkeys(asked, signal.SIG_DFL)
    caught = [number for number in usual if alone and signal.getsignal(number) == usual[number]]
    for number in caught:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, usual[number])


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: in one written in C, an exception would be lost."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _refuse_undecodable(arguments: Sequence[str]) -> None:
    """Refuse names that are not UTF-8, because results and reports are."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{argument!a}: is not UTF-8; use another name.") from None


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"specformer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    del version
