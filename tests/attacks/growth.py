"""Trainings and predictions again and again in one process: no memory, file or thread is kept."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from tests.attacks.scene import inside
from tests.attacks.tally import Tally

from specformer.tasks.job import Request, Workplace
from specformer.tasks.resolve import predict as predictions_of
from specformer.tasks.resolve import resolve
from specformer.tasks.task import PredictionRequest
from specformer.tasks.train import train
from specformer.training.runs.folder import RunFolder

#: What a process may have grown by when all is well: its allocator keeps some pages.
_MOST_BYTES = 16 * 2**20


def attack(scene: Path, trainings: int, predictions: int) -> Iterator[Tally]:
    with inside(scene):
        place = Workplace(torch.device("cpu"), cache=scene / "cache")
        job = resolve(
            Request("own.npz", "specformer", changes=("schedule.epochs=2",)), 1, device="cpu"
        )
        yield _repeated("trainings", trainings, lambda: bool(train(job, place).result))
        run = RunFolder("specformer")
        texts = {predictions_of(run, PredictionRequest(), place).text}

        def predict() -> bool:
            return predictions_of(run, PredictionRequest(), place).text in texts

        yield _repeated("predictions", predictions, predict)


def _held() -> tuple[int, int, int]:
    """Bytes in memory, open files, and threads."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = len(list(Path("/proc/self/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE"), files, threading.active_count()


def _repeated(name: str, times: int, work: Callable[[], bool]) -> Tally:
    """Every time counts; if anything has grown since the first tenth, the last one is wrong."""
    tally = Tally("again and again", name)
    for _ in range(max(5, times // 10)):
        tally.attempt(work)
    before = _held()
    for _ in range(times - tally.counts.total() - 1):
        tally.attempt(work)
    grown = [now - then for now, then in zip(_held(), before, strict=True)]
    good = grown[0] < _MOST_BYTES and grown[1] <= 0 and grown[2] <= 0
    tally.add("unaffected" if good else "wrong", f"grew by {grown} bytes, files, threads")
    tally.on += f" (memory {grown[0] / 2**20:+.1f} MiB, files {grown[1]:+d}, threads {grown[2]:+d})"
    return tally
