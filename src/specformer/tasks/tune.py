r"""Search for the settings of a model on nodes or on many graphs: ``specformer tune``."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specformer.errors import ConfigError, SpecformerError
from specformer.files.documents import write_yaml
from specformer.files.sealed import sealed
from specformer.tasks.job import Job
from specformer.tasks.resolve import TASKS
from specformer.tasks.search import BEST, TRIALS, Search
from specformer.tasks.workplace import Workplace
from specformer.training.runs.folder import RunFolder


@dataclass(frozen=True)
class SearchPlan:
    """How long to search.

    Args:
        trials: settings to try, the recipe's own first.
        splits: those a trial trains on; None for as many as the task says.
        finalists: trials to repeat on ``runs`` splits.
        runs: splits of the finalists; None as above.
        seconds: begin no other trial after this long; the finalists follow all the same.
        explore: trials before every second one changes one of the best.
        parameters: the most a model may have; None for any number.
    """

    trials: int = 30
    splits: int | None = None
    finalists: int = 3
    runs: int | None = None
    seconds: float | None = None
    explore: int = 20
    parameters: int | None = None

    def __post_init__(self) -> None:
        for name in ("trials", "splits", "finalists", "explore", "runs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name} {value}: at least one is needed.")
        if self.seconds is not None and not self.seconds >= 0:
            raise ConfigError(f"--seconds {self.seconds:g}: it must not be negative.")


def tune(job: Job, plan: SearchPlan, folder: Path, place: Workplace) -> dict[str, Any]:
    """Search, and leave the winner as ``best.yaml``, a recipe that ``train --recipe`` takes.

    Keys that the job changes are not searched. What the folder holds already is not run again.
    """
    subject = TASKS[job.kind].trials(job, place)
    splits = subject.splits if plan.splits is None else plan.splits
    # A file may hold fewer splits than a task asks for.
    runs = max(subject.runs, splits) if plan.runs is None else plan.runs
    started = time.perf_counter()
    seconds = math.inf if plan.seconds is None else plan.seconds
    path = folder / BEST
    with RunFolder(folder).held():  # trials of two searches would overwrite each other
        try:
            search = Search(
                subject, folder, seed=job.seed, explore=plan.explore, parameters=plan.parameters
            )
            finalists = min(plan.finalists, plan.trials)
            winner = search.run(plan.trials, splits, finalists, runs, place.progress, seconds)
        except SpecformerError:
            with suppress(OSError):
                folder.rmdir()  # only where there is nothing in it
            raise
        write_yaml(path, sealed(winner["recipe"]))
    return {
        "dataset": subject.name,
        "model": job.model,
        "metric": subject.metric,
        "trials": len({number for number, _ in search.done}),
        "winner": winner["trial"],
        "set": winner["set"],
        "score": winner["score"],
        "val": winner["val"],
        "seconds": time.perf_counter() - started,
        "splits": winner["splits"],
        "trials_file": str(folder / TRIALS),
        "recipe_file": str(path),
    }
