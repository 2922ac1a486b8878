r"""How long commands print nothing: the time between two outputs, in a file or on a terminal.

``make silence`` runs ``train`` on a graph, on molecules and on an image, ``predict`` and ``tune``,
each into a pipe and on a terminal of 80 columns. It also runs ``table 1``, and a stage of more than
two minutes. All start with an empty cache. It prints the time of the first output, the longest
silence and the line before it, and records them; ``make tables`` shows them in the docs. To measure
another command: ``python -m benchmarks.silence -- train cora``.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from threading import Timer

import numpy as np
import torch
import typer
from skimage.io import imsave

import specformer
from benchmarks.record import bench_result, record
from specformer.datasets import csbm
from specformer.graphs import write_npz

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

#: Codes that move a terminal's cursor or change its colours.
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: Where commands write; each place has its own files and cache.
_PLACES = ("file", "terminal")
#: Columns of the terminal.
_COLUMNS = 80
#: Seconds after which Ctrl-C stops a stage that would take much longer.
_LONG = 130.0


@dataclass(frozen=True)
class Silence:
    """Times of a command's output, in seconds.

    Attributes:
        seconds: how long it ran.
        lines: number of lines it wrote.
        first: time of the first output.
        longest: the longest silence after that.
        after: the line before the longest silence.
        leaving: time from the last output to the end of the process.
        status: the exit status.
    """

    seconds: float
    lines: int
    first: float
    longest: float
    after: str
    leaving: float
    status: int


@dataclass(frozen=True)
class Plan:
    """How it was measured: columns of the terminal, and seconds until the long stage is stopped."""

    columns: int = _COLUMNS
    long: float = _LONG


def silence_of(heard: Sequence[tuple[float, str]], ended: float, status: int) -> Silence:
    r"""The silence of a command, from its pieces of output with their times, and its end.

    Example:
        >>> silence_of([(0.2, "Reading.\n"), (1.0, "one\ntwo\n"), (3.5, "end")], 4.0, 0).after
        'two'
    """
    gaps = [(later - moment, text) for (moment, text), (later, _) in pairwise(heard)]
    longest, text = max(gaps, default=(0.0, ""))
    lines = "".join(text for _, text in heard).splitlines()
    spoken = [line.strip() for line in _CODES.sub("", text).splitlines() if line.strip()]
    after = spoken[-1] if spoken else ""
    first, last = (heard[0][0], heard[-1][0]) if heard else (ended, ended)
    return Silence(ended, len(lines), first, longest, after, ended - last, status)


def listen(
    words: Sequence[str], folder: Path, *, terminal: bool = False, stopped: float | None = None
) -> Silence:
    """Run a command of ``specformer`` in a pipe or on a terminal, and read both its streams.

    Ctrl-C stops it after ``stopped`` seconds, if given.
    """
    source = str(Path(specformer.__file__).parents[1])
    environment = os.environ | {
        "MPLBACKEND": "Agg", "COLUMNS": str(_COLUMNS), "TERM": "xterm-256color",
        "PYTHONPATH": source, "XDG_CACHE_HOME": str(folder / "cache"),
    }  # fmt: skip
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, _COLUMNS, 0, 0))
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "specformer", *words],
        cwd=folder, env=environment, stdout=theirs, stderr=theirs,
        # A shell's jobs in the background ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as running:  # fmt: skip
        os.close(theirs)
        timer = Timer(stopped or 0.0, running.send_signal, (signal.SIGINT,))
        if stopped is not None:
            timer.start()
        heard = [(time.monotonic() - started, text) for text in _pieces(ours)]
        status = running.wait()
        timer.cancel()
    os.close(ours)
    return silence_of(heard, time.monotonic() - started, status)


def _pieces(stream: int) -> Iterator[str]:
    while True:
        try:
            chunk = os.read(stream, 65536)
        except OSError:  # Linux reports the end of a terminal this way
            return
        if not chunk:
            return
        yield chunk.decode("utf-8", "replace")


def write_examples(folder: Path) -> None:
    """Write a generated graph of 800 nodes, 600 molecules, and an image of 40 × 40 pixels."""
    write_npz(folder / "graph.npz", csbm(0.5, num_nodes=800))
    rows = [f"{'C' * (n % 20 + 1)}{'O' * (n % 3)}c1ccccc1,{n % 7}" for n in range(600)]
    (folder / "molecules.csv").write_text("\n".join(["smiles,target", *rows]))
    down, right = np.indices((40, 40))
    grey = 127 + 80 * np.sin(down / 4) + 40 * np.cos(right / 7)
    imsave(folder / "image.png", grey.astype(np.uint8), check_contrast=False)


def examples() -> dict[str, list[str]]:
    """Commands that take some time, in this order: some use the results of earlier ones."""
    run = ["--device", "cpu"]
    once = ["--trials", "2", "--splits", "1", "--finalists", "1", "--runs", "1"]
    short = ["--set", "epochs=40", "--set", "form=paper"]
    return {
        "`train`, a graph of 800 nodes": ["train", "graph.npz", "--runs", "3", *short, *run],
        "`predict`": ["predict", "runs/graph-specformer", "--out", "predictions.csv"],
        "`tune`, two trials": ["tune", "graph.npz", *once, "--set", "epochs=20", *run],
        "`train`, 600 molecules": [
            "train",
            "molecules.csv",
            "--runs",
            "2",
            "--set",
            "epochs=2",
            *run,
        ],
        "`train`, an image": ["train", "image.png", "--set", "epochs=300", *run],
    }


def cases() -> Iterator[tuple[str, list[str], bool, float | None]]:
    """Name, command, whether it is on a terminal, and when Ctrl-C stops it."""
    for terminal in (False, True):
        for name, words in examples().items():
            yield name, words, terminal, None
    one = ["--images", "1", "--filters", "comb", "--recipes", "projected", "--device", "cpu"]
    yield "`table 1`, one image, one filter", ["table", "1", *one], False, None
    endless = ["--runs", "1", "--set", "form=paper", "--set", "epochs=1000000"]
    long = ["train", "graph.npz", *endless, "--set", "patience=1000000", "--device", "cpu"]
    yield f"`train`, stopped after {_LONG:.0f} s", long, False, _LONG


@app.command(context_settings={"ignore_unknown_options": True})
def main(
    words: list[str] = typer.Argument(None, help="A command to run in place of the examples."),
    data: Path = typer.Option(Path("../shared/data"), help="Folder with the images of table 1."),
    out: Path | None = typer.Option(None, help="File to record the results in."),
) -> None:
    """Print the longest silence of every command."""
    os.environ.setdefault("SPECFORMER_DATA", str(data.resolve()))
    rows = []
    with tempfile.TemporaryDirectory() as below:
        folders = {where: Path.cwd() if words else Path(below) / where for where in _PLACES}
        for folder in () if words else folders.values():
            folder.mkdir()
            write_examples(folder)
        chosen = [(" ".join(words), words, False, None)] if words else cases()
        for name, command, terminal, stopped in chosen:
            where = _PLACES[terminal]
            found = listen(command, folders[where], terminal=terminal, stopped=stopped)
            rows.append({"case": f"{name} ({where})", **asdict(found)})
            typer.echo(
                f"{name} ({where}): status {found.status}, {found.seconds:.1f} s, "
                f"{found.lines} lines, the first after {found.first:.1f} s; the longest silence, "
                f"{found.longest:.1f} s, after: {found.after}; it left after {found.leaving:.1f} s"
            )
            if found.status != (130 if stopped else 0):
                raise SystemExit(f"{' '.join(command)}: ended with status {found.status}")
    if out:
        cpu = torch.device("cpu")
        record(out, bench_result("silence", cpu, Plan(), rows), "make silence", cpu)


if __name__ == "__main__":
    app()
