"""What a command writes: lines, JSON, and a heartbeat while it works."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from threading import Event, Thread
from typing import Any

import typer

from specformer.errors import ConfigError

#: Loggers that say how data are read, and where a run goes on.
_TELLING = ("files", "graphs", "datasets", "tasks.nodes.node_predict", "training.runs.checkpoint")
#: Clears a terminal's line.
_CLEAR = "\r\x1b[2K"
#: Seconds between two lines while a command works.
EVERY = 1.7
#: More letters than any sentence of ours has.
_LONG = 2_000


def printable(text: str) -> str:
    r"""Text without control characters: names of files may hold anything.

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
    """Print a line on standard output or on standard error, there without its middle if long.

    Names in it may have any length. On a terminal, lines end between words.
    """
    if err and len(text) > _LONG:
        text = f"{text[: _LONG // 2]} … {text[-_LONG // 2 :]}"
    clear_line()
    text = printable(text)
    if (sys.stderr if err else sys.stdout).isatty():
        text = wrapped(text, shutil.get_terminal_size().columns)
    typer.echo(text, err=err)


def refuse_overwriting(out: Path, *inputs: Path) -> None:
    """Refuse to write over a file of a run, or over what is read: a file, or a folder's tables."""
    from specformer.training.runs.folder import CHECKSUMS, CONFIG, METRICS, OUTPUTS, RESULT

    if not out.is_file():
        return
    own = (CHECKSUMS, CONFIG, METRICS, OUTPUTS, RESULT)
    if (out.parent / CONFIG).is_file() and out.name in own:
        raise ConfigError(f"--out {out}: is a file of a run; name another file.")
    tables = [table for path in inputs for table in (*path.glob("nodes.*"), *path.glob("edges.*"))]
    if any(each.is_file() and out.samefile(each) for each in (*inputs, *tables)):
        raise ConfigError(f"--out {out}: is what is read; name another file.")


def wrapped(text: str, width: int) -> str:
    r"""Text whose lines end between words; a line with a command stays whole, to be copied.

    Example:
        >>> print(wrapped("  a line that is too long\nspecformer train some-graph", 12))
          a line
          that is
          too long
        specformer train some-graph
    """
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        parts = [line] if "specformer " in line else textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )  # fmt: skip
        lines += parts or [line]
    return "\n".join(lines)


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    clear_line()
    typer.echo(json.dumps(content, allow_nan=False))


def farewell(result: dict[str, Any], report: Path) -> None:
    """Print the last line of a command that wrote a report."""
    echo(f"Finished in {result['seconds']:.0f} s. Report: {report}")


class _ToStderr(logging.Handler):
    """Writes messages, each once, to the current standard error."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._told:  # several models are trained on the same data
            self._told.add(text)
            echo(text, err=True)


@contextmanager
def showing_logs(silent: bool) -> Iterator[None]:
    """Show on standard error how data are read and what is chosen for them, unless silent."""
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


class Heartbeat:
    """Says every other second what a command is doing, except in stages with their own progress.

    Otherwise imports, reading files and writing reports would be silent for seconds. On a terminal
    one line is overwritten each time, and cleared before other output.
    """

    def __init__(self) -> None:
        self._ended, self._stages, self._has_line = Event(), 0, False
        self._text, self._since = "", time.monotonic()
        #: When a line was last written.
        self.told = self._since
        self._telling: Thread | None = None

    def begin(self, text: str) -> None:
        """Say what is being done, at once and from now on."""
        echo(text, err=True)
        self._text, self._since = text.rstrip("."), time.monotonic()
        if self._telling is None:
            self._telling = Thread(target=self._tell, daemon=True)
            self._telling.start()

    @contextmanager
    def stage(self) -> Iterator[None]:
        """Be quiet during a stage."""
        self._stages += 1
        self.clear()
        try:
            yield
        finally:
            self._stages -= 1
            self._text, self._since = "Still working", time.monotonic()
            self.told = self._since

    def end(self) -> None:
        self._ended.set()
        if self._telling is not None:
            self._telling.join()
        self.clear()

    def clear(self) -> None:
        """Clear the line on a terminal, if there is one."""
        if self._has_line:
            self._has_line = False
            _write_over("")

    def _tell(self) -> None:
        while not self._ended.wait(EVERY):
            elapsed = time.monotonic() - self._since
            if self._stages or elapsed <= EVERY / 2:
                continue
            line = f"{time.strftime('%H:%M:%S')} {self._text} · {elapsed:.0f} s"
            self.told = time.monotonic()
            if not _is_terminal():
                echo(line, err=True)
                continue
            self._has_line = True
            _write_over(printable(line)[: shutil.get_terminal_size().columns - 1])


def _write_over(text: str) -> None:
    stream = sys.__stderr__ or sys.stderr  # not Rich's, which would show the codes as text
    stream.write(_CLEAR + text)
    stream.flush()


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


_HEARTBEAT: ContextVar[Heartbeat | None] = ContextVar("heartbeat", default=None)


@contextmanager
def heartbeat() -> Iterator[None]:
    """Run a command with a heartbeat; warnings that nothing else shows clear their line."""
    current, warnings, usual = Heartbeat(), _ToStderr(), logging.lastResort
    warnings.setLevel(logging.WARNING)
    before = _HEARTBEAT.set(current)
    logging.lastResort = warnings
    try:
        yield
    finally:
        logging.lastResort = usual
        current.end()
        _HEARTBEAT.reset(before)


def clear_line() -> None:
    """Clear the line that says what a command is doing, before other output."""
    if current := _HEARTBEAT.get():
        current.clear()


def start_heartbeat(text: str, silent: bool) -> None:
    """Say what is being done before heavy packages are imported, and repeat it while it lasts.

    Of several workers, only the first says it.
    """
    is_first = os.environ.get("RANK", "0") == "0"
    if (current := _HEARTBEAT.get()) and is_first and not silent:
        current.begin(text)


def since_heartbeat() -> float:
    """Seconds since the last heartbeat; 0 outside of a command."""
    current = _HEARTBEAT.get()
    return time.monotonic() - current.told if current else 0.0


@contextmanager
def without_heartbeat() -> Iterator[None]:
    """Run a stage that shows its own progress."""
    current = _HEARTBEAT.get()
    with current.stage() if current else nullcontext():
        yield
