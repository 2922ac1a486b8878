r"""Train as a job says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specformer.errors import ConfigError
from specformer.nn.pretrained import Pretrained
from specformer.tasks.job import Job
from specformer.tasks.resolve import TASKS
from specformer.tasks.source import Kind
from specformer.tasks.workplace import Workplace
from specformer.training.runs.folder import CHECKPOINT, RunFolder


@dataclass(frozen=True)
class Trained:
    """What training gave: a result, arrays to draw, and the models."""

    kind: Kind
    result: dict[str, Any]
    arrays: dict[str, np.ndarray]
    models: tuple[Pretrained, ...]

    def save_models(self, run: RunFolder) -> None:
        """Keep every run's model in ``model/NNN``."""
        for number, model in enumerate(self.models):
            model.save_pretrained(run.model_folder(number))


def train(job: Job, place: Workplace, begin: Callable[[], RunFolder]) -> Trained:
    """Train all runs of a job.

    ``begin`` gives the run's folder. It is called once the input has been found good, by the first
    worker alone.
    """
    task, workers = TASKS[job.kind], place.workers
    if workers.size > 1 and not task.is_parallel:
        raise ConfigError(f"{job.source}: only sets of many graphs train in several processes.")
    with workers.first_before_others():  # the first may download and decompose
        work = task.load(job, place)
        started = time.perf_counter()
        work = task.with_spectra(work, place)
    stem = Path(CHECKPOINT).stem
    # Of several workers the first alone reads and writes checkpoints.
    checkpoint = begin().path / stem if workers.is_first else Path(stem)
    outcome = task.fit(work, place, checkpoint)
    seconds = time.perf_counter() - started + outcome.seconds_before
    result = {
        **task.summarise(work, outcome),
        "model": job.model,
        "recipe": job.recipe,
        "parameters": outcome.row["parameters"],
        "seconds": seconds,
    }
    result[job.kind] = [{**row, "recipe": job.recipe} for row in result[job.kind]]
    models = tuple(model for model in outcome.models if isinstance(model, Pretrained))
    return Trained(job.kind, result, outcome.arrays, models)
