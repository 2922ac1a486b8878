r"""Stop training runs at random moments, and check that the message they print is true.

``make interruptions`` trains on nodes, on molecules and on an image: once each without a stop, then
twenty times in all with Ctrl-C or SIGTERM at a random moment. It checks the message of the stopped
command:

- "Go on with": there is a checkpoint. ``resume`` says after which epoch it continues, and ends with
  exactly the weights of the run that was not stopped.
- "Nothing was kept yet": there is no checkpoint. ``resume`` starts over and ends with the same
  weights.
- No message: there is no folder, or the run ended before the signal arrived.

The counts are recorded; ``make tables`` shows them in the docs.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import typer
from safetensors.torch import load_file

import specformer
from benchmarks.record import bench_result, record
from benchmarks.silence import write_examples
from specformer.datasets import csbm
from specformer.graphs import write_npz

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_CPU = ("--device", "cpu")
#: The training commands, and their shares of all stops.
_TRAININGS = {
    "nodes": (("train", "nodes.npz", "--runs", "2", "--set", "epochs=100", *_CPU), 0.4),
    "molecules": (("train", "molecules.csv", "--runs", "1", "--set", "epochs=10", *_CPU), 0.3),
    "an image": (("train", "image.png", "--set", "epochs=2000", *_CPU), 0.3),
}
#: Correct outcomes of a stop; all others are wrong.
OUTCOMES = ("went on", "started over", "wrote its report", "had ended", "no folder")


@dataclass(frozen=True)
class Plan:
    """Number of stops, and the seed of their moments."""

    times: int
    seed: int


def started(words: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """Start a command of ``specformer`` in its own process."""
    source = str(Path(specformer.__file__).parents[1])
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "specformer", *words],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell's jobs in the background ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def same_weights(one: Path, other: Path) -> bool:
    """Whether two runs ended with exactly the same models."""
    files = sorted((one / "model").rglob("model.safetensors"))
    for file in files:
        twin = load_file(other / file.relative_to(one))
        if not all(twin[name].equal(tensor) for name, tensor in load_file(file).items()):
            return False
    return bool(files)


def outcome(
    words: Sequence[str], run: Path, whole: Path, moment: float, number: signal.Signals
) -> str:
    """Stop a training run after ``moment`` seconds; one of :data:`OUTCOMES`, or what was wrong."""
    process = started([*words, "--out", run.name], run.parent)
    time.sleep(moment)
    process.send_signal(number)
    _, said = process.communicate()
    last = said.strip().splitlines()[-1] if said.strip() else ""
    if process.returncode == 0:
        return "had ended" if same_weights(run, whole) else "WRONG: ended otherwise"
    if process.returncode not in (128 + number, -number):
        return f"WRONG: status {process.returncode}: {last}"
    if not last.startswith("Stopped."):
        if (run / "report.html").exists():
            return "had ended" if same_weights(run, whole) else "WRONG: other weights"
        return "no folder" if not run.exists() else f"WRONG: a folder and no word: {last}"
    kept = any(run.glob("checkpoint*.safetensors"))
    finished = (run / "result.json").exists()
    if ("Go on with" in last) != (kept or finished):
        return f"WRONG: {last}"
    resumed = started(["resume", run.name], run.parent)
    _, heard = resumed.communicate()
    if resumed.returncode:
        return f"WRONG: resume: {heard.strip().splitlines()[-1]}"
    told = "goes on after epoch" in heard or "tried before" in heard
    if kept and not finished and not told:
        return "WRONG: resume does not say from where"
    if not same_weights(run, whole):
        return "WRONG: other weights"
    return "went on" if kept else "wrote its report" if finished else "started over"


@app.command()
def main(
    times: int = typer.Option(20, help="Number of stops in all."),
    seed: int = typer.Option(0, help="Seed of the moments."),
    out: Path | None = typer.Option(None, help="File to record the counts in."),
) -> None:
    """Stop training runs at random moments, and count the outcomes."""
    draw, rows = random.Random(seed), []
    with tempfile.TemporaryDirectory() as below:
        folder = Path(below)
        write_examples(folder)
        write_npz(folder / "nodes.npz", csbm(0.5, num_nodes=100, num_features=20))
        for name, (words, share) in _TRAININGS.items():
            began, whole = time.monotonic(), folder / f"whole-{words[1]}"
            _, said = started([*words, "--out", whole.name], folder).communicate()
            took = time.monotonic() - began
            if not (whole / "result.json").exists():
                raise SystemExit(said)
            counts = Counter[str]()
            for number in range(round(times * share)):
                moment, sent = draw.uniform(0.0, took), (signal.SIGINT, signal.SIGTERM)[number % 2]
                found = outcome(words, folder / f"{number}-{words[1]}", whole, moment, sent)
                counts[found if found in OUTCOMES else "wrong"] += 1
                typer.echo(f"{name}: {sent.name} after {moment:4.1f} of {took:.1f} s: {found}")
            seconds = time.monotonic() - began
            rows.append({"case": name, "stops": counts.total(), **counts, "seconds": seconds})
    if out:
        cpu = torch.device("cpu")
        plan = Plan(times, seed)
        record(out, bench_result("interruptions", cpu, plan, rows), "make interruptions", cpu)
    if any("wrong" in row for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    app()
