r"""Search for the settings of a model: ``specformer tune``, and the searches of ``compare``."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specformer.errors import ConfigError, RunError, SpecformerError
from specformer.files import write_text
from specformer.files.documents import read_json_lines, sealed, unsealed, write_yaml
from specformer.reports.html import render_search
from specformer.tasks.job import Job, Workplace
from specformer.tasks.recipes.settings import build, read_settings
from specformer.tasks.train import tell
from specformer.tasks.trials import TRIALS, Trials
from specformer.training.engine.capture import release_memory
from specformer.training.runs.environment import environment
from specformer.training.runs.folder import REPORT, RunFolder
from specformer.training.runs.progress import Progress, Silent, Update

#: Files of a search in its folder.
TRIALS_FILE, BEST = "trials.jsonl", "best.yaml"
#: The keys of a trial's line, and their types.
_SCHEMA: dict[str, Any] = {
    "trial": int,
    "splits": int,
    "of": dict,
    "set": list,
    "score": int | float | None,
    "val": dict | None,
    "seconds": int | float,
    "recipe": dict,
}
#: How many of the best trials others start from, and which share of their settings is redrawn.
_PARENTS, _CHANGED = 3, 0.25
#: Most draws for one trial: a draw may be invalid, as a width that heads do not divide.
_DRAWS = 100
#: For searches limited by seconds: more trials than there is time for.
_ENDLESS = 10_000


@dataclass(frozen=True)
class SearchPlan:
    """How long to search.

    Args:
        trials: settings to try, the recipe's own first.
        splits: how many splits a trial trains on; None for the task's number.
        finalists: trials to repeat on ``runs`` splits.
        runs: splits of the finalists; None for the task's number.
        seconds: begin no other trial after this long; finalists are trained in any case.
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

    Keys that the job changes are not searched. Trials that the folder holds are not run again.
    """
    if job.kind not in TRIALS:
        raise ConfigError(f"{job.source}: signals are fitted, so there is nothing to validate on.")
    subject = TRIALS[job.kind](job, place)
    overview = subject.work.overview()
    overview.get("split", {}).pop("runs", None)  # those of `train`; trials have splits of their own
    tell(overview, None, place, model=job.model, recipe=job.recipe)
    started, path = time.perf_counter(), folder / BEST
    with RunFolder(folder).held():  # trials of two searches would overwrite each other
        try:
            search = Search(subject, folder, plan, job.seed)
            before = sum(trial["seconds"] for trial in search.done.values())
            winner = search.run(place.progress)
        except SpecformerError:
            with suppress(OSError):
                folder.rmdir()  # only where there is nothing in it
            raise
        write_yaml(path, sealed(winner["recipe"]))
    result = {
        "dataset": subject.name,
        "model": job.model,
        "metric": subject.metric,
        "trials": len({number for number, _ in search.done}),
        "winner": winner["trial"],
        **{key: winner[key] for key in ("set", "score", "val")},
        "seconds": time.perf_counter() - started + before,
        "splits": winner["splits"],
        "trials_file": str(folder / TRIALS_FILE),
        "recipe_file": str(path),
        "report": str(folder / REPORT),
    }
    words = f"Trial {result['winner']} of {result['trials']} has the best validation "
    told = {
        "kind": "search",
        "title": f"Settings of {result['model']} for {result['dataset']}",
        "summary": f"{words}{result['metric']}, {result['score']:.4g}.",
        "lower": subject.lower,
        "environment": environment(place.device),
    }
    write_text(folder / REPORT, render_search({**result, **told}, list(search.done.values())))
    return result


class Search:
    """Trials of one subject, kept in ``trials.jsonl`` of a folder and never run twice.

    Trial 0 is the recipe as it is. The others draw one value of each list of the subject's space;
    after the first ``plan.explore``, every second one changes a quarter of the settings of one of
    the three best so far instead. Invalid settings are drawn again. Generators are seeded with a
    trial's number, so that a stopped search goes on where it was.
    """

    def __init__(self, subject: Trials, folder: Path, plan: SearchPlan, seed: int = 0) -> None:
        splits = subject.splits if plan.splits is None else plan.splits
        # A file may hold fewer splits than a task asks for.
        runs = max(subject.runs, splits) if plan.runs is None else plan.runs
        self.subject, self.seed = subject, seed
        self.plan = replace(plan, splits=splits, runs=runs)
        self.path = folder / TRIALS_FILE
        #: What trials must share, beside their settings, for their scores to compare.
        self.of = {
            "source": subject.source,
            "model": subject.model,
            "seed": seed,
            "parameters": plan.parameters,
            "from": subject.begun_from,
            "data": subject.data,
        }
        self.done = read_trials(self.path)
        self._refuse_others()

    def run(self, progress: Progress) -> dict[str, Any]:
        """Run all trials, then the best few on more splits; returns the winner.

        No trial but the first begins once the plan's seconds have passed.
        """
        plan = self.plan
        assert plan.splits is not None
        assert plan.runs is not None
        seconds = math.inf if plan.seconds is None else plan.seconds
        end = time.perf_counter() + seconds
        self._stage("trials", range(plan.trials), plan.splits, progress, end)
        chosen = self._ranked(plan.splits)[: min(plan.finalists, plan.trials)]
        self._stage("finalists", chosen, plan.runs, progress, math.inf)
        scores = self._scores(plan.runs)
        finished = [number for number in chosen if number in scores]
        if not finished:
            raise RunError(
                f"{self.subject.name}: training diverged in every trial that could win; set a "
                "lower schedule.learning_rate."
            )
        return self.done[min(finished, key=lambda number: self._loss(scores[number])), plan.runs]

    def _refuse_others(self) -> None:
        """Refuse a folder with trials of another search, whose scores do not compare."""
        given = self.subject.assignments
        start = json.loads(json.dumps(asdict(self.subject.recipe(given))))  # as a file holds it
        for (number, _), trial in self.done.items():
            shared = {**self.of, **trial["of"]}  # files of earlier versions do not say
            odd = [key for key in self.of if shared[key] != self.of[key]]
            other = ["other data" if key == "data" else f"{key}={shared[key]}" for key in odd]
            if given != (trial["set"] if number == 0 else trial["set"][: len(given)]):
                other += trial["set"]
            elif number == 0 and not other and trial.get("recipe") != start:
                other += ["another recipe"]
            if other:
                raise RunError(
                    f"{self.path}: its trials had other settings ({', '.join(other)}), so their "
                    "scores do not compare; name another folder with --out."
                )

    def _stage(
        self, label: str, numbers: Sequence[int], splits: int, progress: Progress, end: float
    ) -> None:
        # The unit says over how many splits, as scores over others do not compare.
        counted = "1 split" if splits == 1 else f"{splits} splits"
        title, unit = f"{self.subject.name}: {label}", f"best {self.subject.metric} on {counted}"
        with progress.stage(title, len(numbers), unit) as update:
            for place, number in enumerate(numbers):
                if place and time.perf_counter() > end:
                    break
                if (number, splits) not in self.done:
                    self._trial(number, splits)
                scores = self._scores(splits).values()
                update(place + 1, min(scores, key=self._loss, default=math.nan))

    def _trial(self, number: int, splits: int) -> None:
        changes = self._changes(number, splits)
        recipe = self.subject.recipe(changes)
        started = time.perf_counter()
        measured = self.subject.measure(recipe, splits)
        self.done[number, splits] = {
            "trial": number,
            "splits": splits,
            "of": self.of,
            "set": changes,
            **asdict(measured),
            "seconds": time.perf_counter() - started,
            "recipe": asdict(recipe),
        }
        lines = [json.dumps(sealed(entry), allow_nan=False) for entry in self.done.values()]
        write_text(self.path, "\n".join(lines) + "\n")
        release_memory()

    def _changes(self, number: int, splits: int) -> list[str]:
        """All of a trial's changes; a finalist keeps those it had on fewer splits."""
        for (earlier, _), trial in self.done.items():
            if earlier == number:
                return trial["set"]
        if number == 0:
            self._check(self.subject.assignments)
            return self.subject.assignments
        generator = np.random.default_rng([self.seed, number])
        for _ in range(_DRAWS):
            changes = [*self.subject.assignments, *self._drawn(generator, number, splits)]
            try:
                self._check(changes)
            except ConfigError as error:
                refused = error
            else:
                return changes
        raise ConfigError(
            f"No valid setting in {_DRAWS} draws; the last error was: {refused}"
        ) from refused

    def _check(self, changes: Sequence[str]) -> None:
        size, most = self.subject.size(self.subject.recipe(changes)), self.plan.parameters
        if most is not None and size > most:
            raise ConfigError(
                f"the model has {size:,} parameters, more than --parameters {most}; "
                "make it smaller with --set."
            )

    def _drawn(self, generator: np.random.Generator, number: int, splits: int) -> list[str]:
        """New settings, or those of one of the best trials with some of them redrawn."""
        drawn = [
            f"{key}={json.dumps(choices[generator.integers(len(choices))])}"
            for key, choices in self.subject.space.items()
        ]
        best = [earlier for earlier in self._ranked(splits) if earlier < number][:_PARENTS]
        if number <= self.plan.explore or number % 2 or not best:
            return drawn
        parent = self.done[best[generator.integers(len(best))], splits]["set"]
        kept = parent[len(self.subject.assignments) :]
        return [*kept, *(change for change in drawn if generator.random() < _CHANGED)]

    def _ranked(self, splits: int) -> list[int]:
        """Trials over that many splits, the best first; those that diverged are left out."""
        scores = self._scores(splits)
        return sorted(scores, key=lambda number: (self._loss(scores[number]), number))

    def _scores(self, splits: int) -> dict[int, float]:
        return {
            number: trial["score"]
            for (number, count), trial in self.done.items()
            if count == splits and trial["score"] is not None
        }

    def _loss(self, score: float) -> float:
        """The score so that less is better."""
        return score if self.subject.lower else -score


def read_trials(path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Trials done before, by number and splits."""
    if not path.is_file():
        return {}
    try:
        found = [unsealed(line, needed=True) for line in read_json_lines(path)]
        whole = [{"of": {}} | trial for trial in found]
        for trial in whole:
            wrong = [key for key, kind in _SCHEMA.items() if not isinstance(trial[key], kind)]
            if wrong or not all(isinstance(change, str) for change in trial["set"]):
                raise ValueError(f"{(wrong or ['set'])[0]} of a trial is not what it should be")
        return {(trial["trial"], trial["splits"]): trial for trial in whole}
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: damaged ({error}); remove it to start over.") from error


def searched(job: Job, seconds: float, runs: int, folder: Path, place: Workplace) -> Job:
    """The job with the settings that a search of so many seconds finds.

    Trials that the folder holds already count.
    """
    best = folder / BEST
    if not best.exists():
        splits = min(runs, TRIALS[job.kind].splits)
        left = max(0.0, seconds - spent(folder)["seconds"])
        plan = SearchPlan(_ENDLESS, splits, finalists=1, runs=splits, seconds=left)
        shown = _Timed(place.progress, job.model, left)
        tune(job, plan, folder, replace(place, progress=shown))
    settings = build(type(job.settings), read_settings(best), str(best))
    return replace(job, settings=settings, recipe=f"{job.recipe}, tuned")


def spent(folder: Path) -> dict[str, Any]:
    """The trials of a search so far, and the time they took."""
    trials = read_trials(folder / TRIALS_FILE).values()
    return {"trials": len(trials), "seconds": sum(trial["seconds"] for trial in trials)}


class _Timed:
    """Shows a model's search by seconds, as the number of trials is not known before."""

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
