r"""Train rows of Table 3 in parallel and limited time; each is a process with a log and a folder.

A job ``MODEL:DATASET:RUNS:EPOCHS`` runs ``specformer table 3`` in ``OUT/DATASET-MODEL``. Settings
``key=value`` may follow after more colons; they become ``--set``. Jobs start in the given order, so
name the longest first. If you call it again, finished jobs are skipped, and others continue from
their checkpoints. ``python -m benchmarks.ledger add OUT/DATASET-MODEL`` records a job.

``python -m benchmarks.table3_rows gps:zinc:2:300 gin:zinc:2:300 --out rows --processes 8``
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

#: Seconds that a stopped job has to write its checkpoint.
_GRACE = 30.0
_LOOK_EVERY = 0.2


@dataclass(frozen=True)
class Job:
    """One model on one data set."""

    model: str
    dataset: str
    runs: int
    epochs: int
    changes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Job:
        """Read a job from the command line.

        Example:
            >>> Job.parse("gin:zinc:2:300:schedule.batch_size=64").changes
            ('schedule.batch_size=64',)
        """
        try:
            model, dataset, runs, epochs, *changes = text.split(":")
            return cls(model, dataset, int(runs), int(epochs), tuple(changes))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text}: write MODEL:DATASET:RUNS:EPOCHS, such as gin:zinc:2:300"
            ) from None

    @property
    def name(self) -> str:
        """The name of its folder and log."""
        return f"{self.dataset}-{self.model}"

    def command(self, out: Path, options: Sequence[str]) -> list[str]:
        """The command that runs the job, or continues it after a stop."""
        changes = [f"schedule.epochs={self.epochs}", *self.changes]
        what = ["--models", self.model, "--datasets", self.dataset, "--runs", str(self.runs)]
        what += [word for change in changes for word in ("--set", change)]
        where = ["--out", str(out / self.name), *options]
        return [sys.executable, "-m", "specformer", "table", "3", *what, *where]


def run_jobs(
    jobs: Sequence[Job], out: Path, processes: int, seconds: float, options: Sequence[str] = ()
) -> list[str]:
    """Run the jobs that are not finished; returns how each job ended."""
    out.mkdir(parents=True, exist_ok=True)
    ends = {job: "finished before" for job in jobs if _result(out, job)}
    waiting = [job for job in jobs if job not in ends]
    running: dict[Job, subprocess.Popen[bytes]] = {}
    until = time.monotonic() + seconds
    try:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < processes:
                job = waiting.pop(0)
                running[job] = _start(job, out, processes, options)
            time.sleep(_LOOK_EVERY)
            for job in [job for job, process in running.items() if process.poll() is not None]:
                status = running.pop(job).returncode
                ends[job] = "finished" if _result(out, job) else f"failed with status {status}"
    finally:
        _stop(running.values())
    for job in running:
        ends[job] = "finished" if _result(out, job) else "stopped"
    return [ends.get(job, "not started") for job in jobs]


def _start(job: Job, out: Path, processes: int, options: Sequence[str]) -> subprocess.Popen[bytes]:
    threads = max(1, (os.cpu_count() or 1) // processes)
    with (out / f"{job.name}.log").open("ab") as log:
        return subprocess.Popen(
            job.command(out, options),
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
            start_new_session=True,  # Ctrl-C reaches it once, through _stop
        )


def _stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Let all processes write their checkpoints, and kill those that do not stop."""
    going = [process for process in processes if process.poll() is None]
    for process in going:
        process.send_signal(signal.SIGINT)
    until = time.monotonic() + _GRACE
    for process in going:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _result(out: Path, job: Job) -> dict[str, Any] | None:
    path = out / job.name / "result.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _reached(out: Path, job: Job) -> str:
    """The progress of an unfinished job, from its log: ``run 2 · 120/300 · mae 0.21``."""
    path = out / f"{job.name}.log"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    told = re.findall(r"\), (.* · \d+/\d+ · \S+ \S+) · ", text)
    return told[-1] if told else "–"


def summary(jobs: Sequence[Job], ends: Sequence[str], out: Path) -> str:
    """One line per job: epochs, validation and test scores, seconds, and how it ended."""
    lines = ["| model | data set | epochs | val | test | at the last epoch | seconds | |"]
    lines.append("|---" * 8 + "|")
    for job, end in zip(jobs, ends, strict=True):
        cells = [_reached(out, job), "", "", "", ""]
        if result := _result(out, job):
            (row,) = result["molecules"]
            figures = [row[name] for name in ("val", "test", "test_at_end")]
            shown = ["–" if each is None else f"{each['mean']:.4f}" for each in figures]
            cells = [f"{row['epochs']:.0f}", *shown, f"{row['seconds']:.0f}"]
        lines.append(f"| {' | '.join([job.model, job.dataset, *cells, end])} |")
    return "\n".join(lines)


def pack(jobs: Sequence[Job], out: Path, archive: Path, *, checkpoints: bool = False) -> None:
    """Write logs and folders to a tar file; optionally the checkpoints of unfinished jobs."""
    with tarfile.open(archive, "w:gz") as tar:
        for job in jobs:
            whole = checkpoints and _result(out, job) is None
            for path in sorted([out / f"{job.name}.log", *(out / job.name).rglob("*")]):
                if path.is_file() and (whole or not path.name.startswith("checkpoint")):
                    tar.add(path, path.relative_to(out.parent))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run jobs, pack their files, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", type=Job.parse, metavar="MODEL:DATASET:RUNS:EPOCHS")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1, help="how many jobs run at a time")
    parser.add_argument(
        "--lanes", type=int, default=1, help="how many runs of a job train at a time"
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="stop all jobs after this time"
    )
    parser.add_argument("--data", help="folder with data files")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pack", type=Path, help="write all files but checkpoints to this .tar.gz")
    parser.add_argument(
        "--checkpoints", action="store_true", help="also pack checkpoints of stopped jobs"
    )
    asked = parser.parse_args(arguments)
    options = ["--device", asked.device, "--lanes", str(asked.lanes)]
    options += ["--data", asked.data] if asked.data else []
    ends = run_jobs(asked.jobs, asked.out, asked.processes, asked.seconds, options)
    if asked.pack:
        pack(asked.jobs, asked.out, asked.pack, checkpoints=asked.checkpoints)
    typer.echo(summary(asked.jobs, ends, asked.out))


if __name__ == "__main__":
    main()
