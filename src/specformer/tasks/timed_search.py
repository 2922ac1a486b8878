r"""A search for a model's settings that has so many seconds and no more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specformer.files.documents import read_json_lines
from specformer.tasks.graphs.trials import GraphTrials
from specformer.tasks.job import Job
from specformer.tasks.nodes.trials import NodeTrials
from specformer.tasks.recipes.settings import read_settings
from specformer.tasks.resolve import TASKS
from specformer.tasks.search import BEST, TRIALS
from specformer.tasks.tune import SearchPlan, tune
from specformer.tasks.workplace import Workplace
from specformer.training.runs.progress import Progress, Silent, Update

#: More trials than any search has time for, and the splits that each trains on.
_TRIALS = 10_000
_TRIAL_SPLITS = {"nodes": NodeTrials.splits, "molecules": GraphTrials.splits}


def searched(job: Job, seconds: float, runs: int, folder: Path, place: Workplace) -> Job:
    """The job with the settings that a search finds; what its folder holds counts."""
    best = folder / BEST
    if not best.exists():
        splits = min(runs, _TRIAL_SPLITS[job.kind])
        left = max(0.0, seconds - spent(folder)["seconds"])
        plan = SearchPlan(_TRIALS, splits, finalists=1, runs=splits, seconds=left)
        shown = _Timed(place.progress, job.model, left)
        tune(job, plan, folder, replace(place, progress=shown))
    settings = TASKS[job.kind].read_recipe(job.model, read_settings(best), str(best))
    return replace(job, settings=settings, recipe=f"{job.recipe}, tuned")


def spent(folder: Path) -> dict[str, Any]:
    """The trials of a search so far, and the time they took."""
    path = folder / TRIALS
    trials = read_json_lines(path) if path.is_file() else []
    return {"trials": len(trials), "seconds": sum(trial["seconds"] for trial in trials)}


class _Timed:
    """Shows a model's search by the seconds that it has, not by trials it will not come to."""

    def __init__(self, shown: Progress, model: str, seconds: float) -> None:
        self._shown, self._model, self._seconds = shown, model, seconds

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
        started, most = time.perf_counter(), max(1, round(self._seconds))
        shown = Silent() if total == 1 else self._shown  # the only finalist is trained already
        with shown.stage(f"{label} of {self._model}, seconds", most, unit) as update:

            def timed(done: int, figure: float, **others: float) -> None:  # noqa: ARG001
                update(min(most, round(time.perf_counter() - started)), figure, **others)

            yield timed

    def say(self, text: str) -> None:
        self._shown.say(text)
