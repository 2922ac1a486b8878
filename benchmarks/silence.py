r"""How long commands are silent: the time between two pieces of output, into a pipe.

``make silence`` runs ``train`` on a graph and on molecules, ``predict``, ``tune`` and ``table 1``,
each in a process of its own, and prints when something was first said, the longest silence and the
line before it. Another command can be named: ``python -m benchmarks.silence -- train cora``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import typer

import specformer
from specformer.datasets import csbm
from specformer.graphs import write_npz

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Silence:
    """What was heard of a command.

    Args:
        seconds: how long it ran.
        lines: how many it wrote.
        first: when something was first said.
        longest: the longest silence after that.
        after: the line before it.
        leaving: from the last words to the end of the process.
        status: the exit status.
    """

    seconds: float
    lines: int
    first: float
    longest: float
    after: str
    leaving: float
    status: int


def listen(words: Sequence[str], folder: Path) -> Silence:
    """Run a command of ``specformer`` and listen to both of its streams."""
    command = [sys.executable, "-m", "specformer", *words]
    source = str(Path(specformer.__file__).parents[1])
    environment = {**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "80", "PYTHONPATH": source}
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        assert running.stdout is not None
        heard: list[tuple[float, str]] = []
        while chunk := os.read(running.stdout.fileno(), 65536):
            heard.append((time.monotonic() - started, chunk.decode("utf-8", "replace")))
        status = running.wait()
    ended = time.monotonic() - started
    times = [moment for moment, _ in heard]
    gaps = [(later - moment, text) for (moment, text), (later, _) in pairwise(heard)]
    longest, text = max(gaps, default=(0.0, ""))
    lines = "".join(text for _, text in heard).splitlines()
    after = text.strip().splitlines()[-1] if text.strip() else ""
    first, last = (times[0], times[-1]) if times else (ended, ended)
    return Silence(ended, len(lines), first, longest, after, ended - last, status)


def write_examples(folder: Path) -> None:
    """A generated graph of 800 nodes, and 600 molecules."""
    write_npz(folder / "graph.npz", csbm(0.5, num_nodes=800))
    rows = [f"{'C' * (n % 20 + 1)}{'O' * (n % 3)}c1ccccc1,{n % 7}" for n in range(600)]
    (folder / "molecules.csv").write_text("\n".join(["smiles,target", *rows]))


def examples() -> list[list[str]]:
    """Commands that each take a while, in an order in which one may use what another left."""
    run = ["--device", "cpu"]
    once = ["--trials", "2", "--splits", "1", "--finalists", "1", "--runs", "1"]
    return [
        ["train", "graph.npz", "--runs", "3", "--set", "epochs=40", "--out", "run", *run],
        ["predict", "run", "--out", "predictions.csv"],
        ["tune", "graph.npz", *once, "--set", "epochs=20", *run],
        ["train", "molecules.csv", "--set", "epochs=3", *run],
        ["table", "1", "--images", "1", "--filters", "comb", "--recipes", "projected", *run],
    ]


@app.command(context_settings={"ignore_unknown_options": True})
def main(
    words: list[str] = typer.Argument(None, help="A command in place of the examples."),
    data: Path = typer.Option(Path("../shared/data"), help="Folder with the images of table 1."),
) -> None:
    """Print the longest silence of every command."""
    os.environ.setdefault("SPECFORMER_DATA", str(data.resolve()))
    with tempfile.TemporaryDirectory() as below:
        folder = Path.cwd() if words else Path(below)
        if not words:
            write_examples(folder)
        for command in [words] if words else examples():
            found = listen(command, folder)
            typer.echo(
                f"{' '.join(command[:2])}: status {found.status}, {found.seconds:.1f} s, "
                f"{found.lines} lines, the first after {found.first:.1f} s; the longest silence, "
                f"{found.longest:.1f} s, after: {found.after}; it left after {found.leaving:.1f} s"
            )


if __name__ == "__main__":
    app()
