r"""Train as a job says."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specformer.errors import ConfigError
from specformer.tasks.job import Job
from specformer.tasks.overview import in_words, warnings_of
from specformer.tasks.resolve import TASKS
from specformer.tasks.source import Kind
from specformer.tasks.task import Outcome
from specformer.tasks.workplace import Workplace
from specformer.training.runs.folder import CHECKPOINT, RunFolder

logger = logging.getLogger(__name__)

#: Checkpoints' path for workers that neither read nor write them: the first does.
_ELSEWHERE = Path(Path(CHECKPOINT).stem)


@dataclass(frozen=True)
class Trained:
    """What training gave: a result for ``result.json``, and the outcome it tells of."""

    kind: Kind
    result: dict[str, Any]
    outcome: Outcome


def train(
    job: Job, place: Workplace, begin: Callable[[], RunFolder | None] = lambda: None
) -> Trained:
    """Train all runs of a job.

    ``begin`` gives the run's folder, for checkpoints. It is called once the input has been found
    good, by the first worker alone. Without a folder no state is kept on the way.
    """
    task, workers = TASKS[job.kind], place.workers
    if workers.size > 1 and not task.is_parallel:
        raise ConfigError(f"{job.source}: only sets of many graphs train in several processes.")
    with workers.first_before_others():  # the first may download and decompose
        work = task.load(job, place)
        _say(job, task.overview(work), place)
        started = time.perf_counter()
        work = task.with_spectra(work, place)
    outcome = task.fit(work, place, _checkpoint(begin) if workers.is_first else _ELSEWHERE)
    seconds = time.perf_counter() - started + outcome.seconds_before
    result = {
        **task.summarise(work, outcome),
        "model": job.model,
        "recipe": job.recipe,
        "parameters": outcome.row["parameters"],
        "seconds": seconds,
    }
    result[job.kind] = [{**row, "recipe": job.recipe} for row in result[job.kind]]
    return Trained(job.kind, result, outcome)


def _say(job: Job, read: Mapping[str, Any], place: Workplace) -> None:
    """What was read, before anything takes long."""
    by = {"model": job.model, "recipe": job.recipe, "device": str(place.device)}
    place.progress.say(in_words({**read, **by}))
    for warning in warnings_of(read):
        logger.warning("%s", warning)


def _checkpoint(begin: Callable[[], RunFolder | None]) -> Path | None:
    run = begin()
    return None if run is None else run.path / _ELSEWHERE
