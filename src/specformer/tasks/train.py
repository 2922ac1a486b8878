r"""Train as a job says."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from specformer.tasks.estimate import Estimate
from specformer.tasks.job import Job, Kind, Workplace
from specformer.tasks.overview import in_words, warnings_of
from specformer.tasks.resolve import TASKS
from specformer.tasks.task import Outcome
from specformer.training.engine.precision import one_thread
from specformer.training.runs.folder import CHECKPOINT, RunFolder

logger = logging.getLogger(__name__)

#: Where spectra are kept that one thread computed.
_ONE_THREAD = "one-thread"
#: Checkpoints' path for workers that neither read nor write them: the first does.
_ELSEWHERE = Path(Path(CHECKPOINT).stem)


@dataclass(frozen=True)
class Trained:
    """What training gave: a result for ``result.json``, and the outcome it tells of."""

    kind: Kind
    result: dict[str, Any]
    outcome: Outcome


def train(
    job: Job,
    place: Workplace,
    begin: Callable[[], RunFolder | None] = lambda: None,
    beside: Any = None,
) -> Trained:
    """Train all runs of a job.

    Args:
        job: what to train on what.
        place: where.
        begin: gives the run's folder, for checkpoints. It is called once the input has been found
            good, by the first worker alone. Without a folder no state is kept on the way.
        beside: the data of another model's job on the same source, as its task loaded them: they
            are not read again, nor told of.
    """
    if job.deterministic and place.cache is not None:  # others' spectra may round otherwise
        place = replace(place, cache=place.cache / _ONE_THREAD)
    task, workers = TASKS[job.kind], place.workers
    if workers.size > 1:
        task.refuse_workers(job)
    together = workers.size > 1 and task.spectra_together(job)
    alone = not (together and task.loads_together(job))
    with one_thread(job.deterministic):
        # The first may download and decompose.
        with workers.first_before_others() if alone else nullcontext():
            if beside is None:
                work = task.load(job, place)
                needs = task.estimate(work, place.device)
                tell(task.overview(work), needs, place, model=job.model, recipe=job.recipe)
            else:
                work = task.load_beside(beside, job, place)
            started = time.perf_counter()
            if not together:
                work = task.with_spectra(work, place)
        if together:
            work = task.with_spectra(work, place)
        checkpoint: Path | None = _ELSEWHERE
        if workers.is_first:
            run = begin()
            checkpoint = None if run is None else run.path / _ELSEWHERE
        return _trained(job, work, place, checkpoint, started)


def train_on(job: Job, work: Any, place: Workplace) -> Trained:
    """Train on what is held already; no state is kept on the way.

    ``work``: the data and splits, as :meth:`~specformer.tasks.task.Task.load` gives them.
    """
    task, started = TASKS[job.kind], time.perf_counter()
    for warning in warnings_of(task.overview(work)):
        logger.warning("%s", warning)
    return _trained(job, task.with_spectra(work, place), place, None, started)


def _trained(
    job: Job, work: Any, place: Workplace, checkpoint: Path | None, started: float
) -> Trained:
    task = TASKS[job.kind]
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
    return Trained(job.kind, result, outcome)


def keep(run: RunFolder, job: Job, trained: Trained) -> dict[str, Any]:
    """Write all that training gave into the run's folder; returns its result."""
    run.write_models(trained.outcome.models, trained.outcome.beside)
    return run.finish(
        trained.kind,
        trained.result,
        trained.outcome.arrays,
        command=job.repeat,
        seed=job.seed,
        device=torch.device(job.device),
    )


def tell(read: Mapping[str, Any], needs: Estimate | None, place: Workplace, **by: str) -> None:
    """Say what was read, and what it will take ``by`` which model, before anything takes long."""
    told: dict[str, Any] = {**read, **by, "device": str(place.device)}
    if needs is not None:
        told["estimate"] = asdict(needs)
    place.progress.say(in_words(told))
    for warning in warnings_of(read):
        logger.warning("%s", warning)
