r"""Train as a job says, or tell what training would read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from specformer.datasets import graph_set
from specformer.datasets.registry import graph_source
from specformer.errors import ConfigError, GraphError
from specformer.graphs import Columns
from specformer.tasks.estimate import Estimate
from specformer.tasks.job import Job, Request, Workplace
from specformer.tasks.overview import in_words, of_graphs, of_nodes, warnings_of
from specformer.tasks.resolve import TASKS, resolve
from specformer.tasks.task import Outcome, Work
from specformer.training.runs.environment import choose_device, one_thread
from specformer.training.runs.folder import CHECKPOINT, RunFolder

logger = logging.getLogger(__name__)

#: The folder of the cache for spectra that one thread computed.
_ONE_THREAD = "one-thread"


@dataclass(frozen=True)
class Trained:
    """What training gave: ``result.json``, and the outcome that it describes."""

    result: dict[str, Any]
    outcome: Outcome


def train(
    job: Job,
    place: Workplace,
    begin: Callable[[], RunFolder | None] = lambda: None,
    beside: Work | None = None,
) -> Trained:
    """Train all runs of a job.

    Args:
        job: what to train on what.
        place: where.
        begin: gives the run's folder, for checkpoints. The first worker calls it once the data are
            loaded and checked. Without a folder, no checkpoints are written.
        beside: data that another model's job on the same source has loaded. They are not read or
            described again.
    """
    if job.deterministic and place.cache is not None:  # others' spectra may round otherwise
        place = replace(place, cache=place.cache / _ONE_THREAD)
    task, workers = TASKS[job.kind], place.workers
    read_together = decomposed_together = False
    if workers.size > 1:
        task.refuse_workers(job)
        read_together, decomposed_together = task.together(job)
    with one_thread(job.deterministic):
        # The first may download and decompose.
        with nullcontext() if read_together else workers.first_before_others():
            if beside is None:
                work = task.load(job, place)
                needs = work.estimate(place.device)
                tell(work.overview(), needs, place, model=job.model, recipe=job.recipe)
            else:
                work = beside.beside(job, place)
            started = time.perf_counter()
            if not decomposed_together:
                work = work.with_spectra(place)
        if decomposed_together:
            work = work.with_spectra(place)
        stem = Path(CHECKPOINT).stem
        checkpoint: Path | None = Path(stem)  # which only the first worker reads and writes
        if workers.is_first:
            run = begin()
            checkpoint = None if run is None else run.path / stem
        return _trained(job, work, place, checkpoint, started)


def train_on(job: Job, work: Work, place: Workplace) -> Trained:
    """Train on data and splits in memory, as ``Work.load`` gives them, without checkpoints."""
    started = time.perf_counter()
    for warning in warnings_of(work.overview()):
        logger.warning("%s", warning)
    return _trained(job, work.with_spectra(place), place, None, started)


def _trained(
    job: Job, work: Work, place: Workplace, checkpoint: Path | None, started: float
) -> Trained:
    outcome = work.train(place, checkpoint)
    seconds = time.perf_counter() - started + outcome.seconds_before
    result = {
        **work.summarise(outcome),
        "model": job.model,
        "recipe": job.recipe,
        "parameters": outcome.row["parameters"],
        "seconds": seconds,
    }
    result[job.kind] = [{**row, "recipe": job.recipe} for row in result[job.kind]]
    return Trained(result, outcome)


def keep(run: RunFolder, job: Job, trained: Trained) -> dict[str, Any]:
    """Write models, arrays and the result into the run's folder; returns ``result.json``."""
    run.write_models(trained.outcome.models, trained.outcome.beside)
    return run.finish(
        job.kind,
        trained.result,
        trained.outcome.arrays,
        command=job.repeat,
        seed=job.seed,
        device=torch.device(job.device),
    )


def tell(read: Mapping[str, Any], needs: Estimate | None, place: Workplace, **by: str) -> None:
    """Say what was read and, of the model in ``by``, what training will take."""
    told: dict[str, Any] = {**read, **by, "device": str(place.device)}
    if needs is not None:
        told["estimate"] = asdict(needs)
    words, warnings = in_words(told), warnings_of(read)
    place.progress.say(words)
    for warning in warnings:
        logger.warning("%s", warning)


def inspect_source(
    source: str, data: Path | None = None, columns: Columns | None = None
) -> dict[str, Any]:
    """What ``train`` would read of a source with its usual recipe.

    ``columns`` says which column is what, where their names do not tell. In the answer, ``problem``
    says why training would be refused, ``warnings`` what to know before it, and ``estimate`` what
    it takes on this machine.

    Example:
        >>> inspect_source("csbm")["classes"]
        {'0': 500, '1': 500}
    """
    columns, place = columns or Columns(), Workplace(choose_device("auto"), data)
    job = resolve(Request(source, columns=columns))
    try:
        work = TASKS[job.kind].load(job, place)
    except (ConfigError, GraphError) as error:
        if job.kind == "filters":
            raise
        if job.kind == "nodes":
            found = of_nodes(graph_source(source, data, columns)[0], job.settings, [])
        else:
            found = of_graphs(graph_set(source, data, columns), job.settings, [])
        return {**found, "problem": str(error)}
    found, needs = work.overview(), work.estimate(place.device)
    if job.kind == "filters":
        return found
    found |= {"recipe": job.recipe, "warnings": warnings_of(found)}
    if needs is None:
        return {**found, "problem": work.refusal(place.device)}
    return {**found, "estimate": asdict(needs)}
