r"""Stop a training at random moments, and see whether what was then said is true.

``make interruptions`` trains once without a stop, and then twenty times with Ctrl-C at a random
moment. What the stopped command says is checked:

- "Go on with": a checkpoint is there; ``resume`` says after which epoch it goes on, and ends with
  the very weights of the run that was not stopped;
- "Nothing was kept yet": there is none; ``resume`` starts over, to the same weights;
- nothing: no folder was left behind, or the run had ended before it heard the signal.
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
from pathlib import Path

import typer
from safetensors.torch import load_file

import specformer
from specformer.datasets import csbm
from specformer.graphs import write_npz

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_TRAIN = ("train", "graph.npz", "--runs", "2", "--set", "epochs=100", "--device", "cpu")


def started(words: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """A command of ``specformer`` in a process of its own."""
    source = str(Path(specformer.__file__).parents[1])
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "specformer", *words],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell's jobs in the background ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def same_weights(one: Path, other: Path) -> bool:
    """Whether two runs ended with the same models, to the bit."""
    files = sorted((one / "model").rglob("model.safetensors"))
    for file in files:
        twin = load_file(other / file.relative_to(one))
        if not all(twin[name].equal(tensor) for name, tensor in load_file(file).items()):
            return False
    return bool(files)


def outcome(folder: Path, name: str, moment: float) -> str:
    """Stop a training after so many seconds; what was said, or how it was wrong."""
    run = folder / name
    process = started([*_TRAIN, "--out", name], folder)
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    last = said.strip().splitlines()[-1] if said.strip() else ""
    if process.returncode == 0:
        return "had ended" if same_weights(run, folder / "whole") else "WRONG: ended otherwise"
    if process.returncode not in (130, -signal.SIGINT):
        return f"WRONG: status {process.returncode}: {last}"
    if not last.startswith("Stopped."):
        if (run / "report.html").exists():
            return "had ended" if same_weights(run, folder / "whole") else "WRONG: other weights"
        return "no folder" if not run.exists() else f"WRONG: a folder and no word: {last}"
    kept = any(run.glob("checkpoint*.safetensors"))
    finished = (run / "result.json").exists()
    if ("Go on with" in last) != (kept or finished):
        return f"WRONG: {last}"
    resumed = started(["resume", name], folder)
    _, heard = resumed.communicate()
    if resumed.returncode:
        return f"WRONG: resume: {heard.strip().splitlines()[-1]}"
    told = "goes on after epoch" in heard or "tried before" in heard
    if kept and not finished and not told:
        return "WRONG: resume does not say from where"
    if not same_weights(run, folder / "whole"):
        return "WRONG: other weights"
    return "went on" if kept else "wrote its report" if finished else "started over"


@app.command()
def main(
    times: int = typer.Option(20, help="How often."),
    within: float = typer.Option(None, help="Seconds. (default: as long as a whole run takes)"),
    seed: int = typer.Option(0, help="Of the moments."),
) -> None:
    """Count what came of stopping a training at random moments."""
    draw, counts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as below:
        folder = Path(below)
        write_npz(folder / "graph.npz", csbm(0.5, num_nodes=150, num_features=20))
        began = time.monotonic()
        _, said = started([*_TRAIN, "--out", "whole"], folder).communicate()
        took = time.monotonic() - began
        if not (folder / "whole" / "result.json").exists():
            raise SystemExit(said)
        for number in range(times):
            moment = draw.uniform(0.0, within or took)
            found = outcome(folder, f"run-{number}", moment)
            counts[found] += 1
            typer.echo(f"{moment:5.1f} of {took:.1f} s: {found}")
    typer.echo(", ".join(f"{found}: {count}" for found, count in counts.most_common()))


if __name__ == "__main__":
    app()
