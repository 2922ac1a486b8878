r"""How much code a command runs through: files, functions and room changes.

A *walk* records the functions of ``specformer`` that one run of a command calls, in this process.
A *room* is a folder or file directly below ``src/specformer``. For each walk we count

- *files*: files with a function that was called;
- *functions*: different functions that were called, with methods, lambdas and inner functions, but
  without the top level of modules and comprehensions;
- *room changes*: with functions in the order of their first calls, how often the next function is
  in another room.

A reader who follows the command with a debugger, and steps into all new functions, opens that many
files and changes rooms that often. ``make walks`` prints the table for the three ways through
``train``: a graph from CSV files, molecules from SMILES, and an image.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pkgutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from skimage.io import imsave

import specformer
from specformer.cli import app as command_line

_PACKAGE = Path(specformer.__file__).parent
#: Names of code that is not a function.
_NOT_FUNCTIONS = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_SMILES = ("CCO", "CCN", "c1ccccc1", "CC(=O)O", "CCCl", "C1CCCCC1", "CC(C)O", "CCOC", "CCCC", "CO")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Walk:
    """The functions of a command in the order of their first calls, each as (file, name).

    Example:
        >>> walk = Walk((("nn/a.py", "f"), ("nn/b.py", "g"), ("errors.py", "h"), ("nn/a.py", "k")))
        >>> walk.files, walk.functions, walk.room_changes
        (3, 4, 2)
    """

    steps: tuple[tuple[str, str], ...]

    @property
    def files(self) -> int:
        """How many files it touches."""
        return len({file for file, _ in self.steps})

    @property
    def functions(self) -> int:
        """How many functions it calls."""
        return len(self.steps)

    @property
    def room_changes(self) -> int:
        """How often the next new function is in another room."""
        rooms = [file.split("/")[0] for file, _ in self.steps]
        return sum(before != after for before, after in pairwise(rooms))


def walked(call: Callable[[], object]) -> Walk:
    """The walk of a call, in this thread and all threads that it starts."""
    seen: set[CodeType] = set()
    steps: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        seen.add(code)
        path = Path(code.co_filename)
        if code.co_name not in _NOT_FUNCTIONS and path.is_relative_to(_PACKAGE):
            steps.append((path.relative_to(_PACKAGE).as_posix(), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Walk(tuple(steps))


def walk_of(words: Sequence[str]) -> Walk:
    """The walk of ``specformer`` with these words; what it prints is dropped.

    All modules are imported first, so that decorators and class bodies do not count.
    """
    for module in pkgutil.walk_packages(specformer.__path__, "specformer."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # an optional package is not installed
                import_module(module.name)

    def call() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            command_line(list(words), standalone_mode=False)

    return walked(call)


@contextlib.contextmanager
def example_commands() -> Iterator[dict[str, list[str]]]:
    """The three ways through ``train`` on small data, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_graph(folder / "graph")
        smiles = [f"{text},{len(text) + 0.5}" for text in _SMILES * 4]
        (folder / "molecules.csv").write_text("\n".join(["smiles,target", *smiles]))
        rows, columns = np.mgrid[:8, :8]
        imsave(folder / "image.png", (16 * (rows + columns)).astype(np.uint8), check_contrast=False)
        common = ["--device", "cpu", "--cache", str(folder / "cache"), "--json"]
        yield {
            f"train {source}": [
                *("train", str(folder / source), "--runs", "1", "--set", "schedule.epochs=2"),
                *("--out", str(folder / f"run-{source}"), *common),
            ]
            for source in ("graph", "molecules.csv", "image.png")
        }


def _write_graph(folder: Path) -> None:
    """A ring of 30 nodes with two classes, as CSV files."""
    folder.mkdir()
    edges = [f"{node},{(node + 1) % 30}" for node in range(30)]
    nodes = [f"{node},{node % 7},{'ab'[node // 15]}" for node in range(30)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]))
    (folder / "nodes.csv").write_text("\n".join(["id,feature,label", *nodes]))


@app.command(context_settings={"ignore_unknown_options": True})
def main(
    words: list[str] = typer.Argument(
        None, help="A command to run in place of the three examples."
    ),
    steps: bool = typer.Option(False, "--steps", help="Also print every function of the walk."),
) -> None:
    """Count the files, functions and room changes of `specformer train`, or of another command."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    with contextlib.ExitStack() as stack:
        commands = {" ".join(words): words} if words else stack.enter_context(example_commands())
        # Each command has its own process, so that none uses what another computed.
        fresh = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, fresh, max_tasks_per_child=1) as pool:
            walks = dict(zip(commands, pool.map(walk_of, commands.values()), strict=True))
    table = Table("command", "files", "functions", "room changes")
    for name, walk in walks.items():
        table.add_row(name, *map(str, (walk.files, walk.functions, walk.room_changes)))
        if steps:
            typer.echo("\n".join([f"{name}:", *(f"  {file} {f}" for file, f in walk.steps)]))
    Console().print(table)


if __name__ == "__main__":
    app()
