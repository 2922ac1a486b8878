r"""Random search for settings, judged on validation data alone."""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from specformer.errors import ConfigError, RunError
from specformer.files import write_text
from specformer.files.documents import read_json_lines
from specformer.files.sealed import sealed, unsealed
from specformer.tasks.job import Job
from specformer.tasks.recipes.book import shipped
from specformer.tasks.recipes.settings import build, override
from specformer.tasks.workplace import Workplace
from specformer.training.engine.capture import release_memory
from specformer.training.runs.progress import Progress

#: Files of a search in its folder.
TRIALS, BEST = "trials.jsonl", "best.yaml"
#: How many of the best trials may be started from; which share of their settings is drawn anew.
_PARENTS, _CHANGED = 3, 0.25
#: Draws of one trial before it is given up: some widths no number of heads divides.
_DRAWS = 100


@dataclass(frozen=True)
class Measured:
    """How good a setting is on validation data.

    Args:
        score: what trials are ranked by; None where training diverged.
        val: the :func:`~specformer.training.evaluation.summaries.summary` of what training gives.
        epochs: the mean over runs.
    """

    score: float | None
    val: dict[str, Any] | None
    epochs: float


class Trials(ABC):
    """A job whose settings are searched.

    Args:
        job: the model, its data, and the settings that trials start from.
        place: where to train.
    """

    #: The file of the lists to draw from, and the validation figure that keeps an epoch.
    space_file: ClassVar[str]
    monitor: ClassVar[str]
    #: Splits that a trial trains on, unless someone says.
    splits: ClassVar[int]

    #: The name of the data, what a score is, and whether less of it is better.
    name: str
    metric: str
    lower: bool = False
    #: What tells the models apart that trials start from; None for fresh ones.
    begun_from: str | None = None

    def __init__(self, job: Job, place: Workplace) -> None:
        self.source, self.model, self.seed, self.place = job.source, job.model, job.seed, place
        #: ``key=value`` changes that all trials have.
        self.assignments = [f"monitor={self.monitor}", *job.changes]
        #: The lists that trials draw from, by key.
        self.space = search_space(self.space_file, self.space_of(job), self.assignments)
        self._settings = job.settings

    def space_of(self, job: Job) -> str:
        """The name of the lists in the file: the model's, unless it has several."""
        return job.model

    def recipe(self, changes: Sequence[str]) -> Any:
        """The job's recipe, a data class, with these changes; refuses those it cannot have."""
        settings = override(asdict(self._settings), changes)
        return build(type(self._settings), settings, "the search")

    @property
    @abstractmethod
    def runs(self) -> int:
        """Splits that finalists train on, unless someone says."""

    @abstractmethod
    def size(self, recipe: Any) -> int:
        """Parameters of its model; refuses settings that no model can have."""

    @abstractmethod
    def measure(self, recipe: Any, splits: int) -> Measured:
        """Train on that many splits and look at the validation part of each."""


class Search:
    """Trials of one subject, kept in a file and never run twice.

    Trial 0 is the recipe as it is. The others draw one value of each list of the subject's space;
    after the first ``explore``, every second one changes a quarter of the settings of one of the
    three best so far instead. What no model can have is drawn again. Generators are seeded with a
    trial's number, so that a stopped search goes on where it was.

    Args:
        subject: what is tuned.
        folder: where ``trials.jsonl`` is kept.
        seed: of what is drawn.
        explore: trials drawn afresh before any starts from a better one.
        parameters: the most a model may have; None for any number.
    """

    def __init__(
        self,
        subject: Trials,
        folder: Path,
        *,
        seed: int = 0,
        explore: int = 20,
        parameters: int | None = None,
    ) -> None:
        self.subject, self.seed = subject, seed
        self.explore, self.parameters = explore, parameters
        self.path = folder / TRIALS
        #: What trials have to share for their scores to compare, beside their settings.
        self.of = {
            "source": subject.source,
            "model": subject.model,
            "seed": seed,
            "parameters": parameters,
            "from": subject.begun_from,
        }
        self.done = _read(self.path)
        self._refuse_others()

    def run(
        self,
        trials: int,
        splits: int,
        finalists: int,
        runs: int,
        progress: Progress,
        seconds: float = math.inf,
    ) -> dict[str, Any]:
        """All trials over ``splits`` splits, the best few over ``runs``; returns the winner.

        No trial but the first begins once ``seconds`` have passed.
        """
        self._stage("trials", range(trials), splits, progress, time.perf_counter() + seconds)
        chosen = self._ranked(splits)[:finalists]
        self._stage("finalists", chosen, runs, progress, math.inf)
        scores = self._scores(runs)
        finished = [number for number in chosen if number in scores]
        if not finished:
            raise RunError(
                f"{self.subject.name}: training diverged in every trial that counts; set a lower "
                "schedule.learning_rate."
            )
        return self.done[min(finished, key=lambda number: self._loss(scores[number])), runs]

    def _refuse_others(self) -> None:
        """Refuse a folder with trials of another search: no score of theirs may win this one."""
        given = self.subject.assignments
        for (number, _), trial in self.done.items():
            shared = {**self.of, **trial["of"]}  # files of earlier versions do not say
            other = [f"{key}={shared[key]}" for key in self.of if shared[key] != self.of[key]]
            if given != (trial["set"] if number == 0 else trial["set"][: len(given)]):
                other += trial["set"]
            elif number == 0 and not other and trial.get("recipe") != self._start:
                other += ["another recipe"]
            if other:
                raise RunError(
                    f"{self.path}: its trials had other settings ({', '.join(other)}), so their "
                    "scores do not compare; name another folder with --out."
                )

    @property
    def _start(self) -> Any:
        """The recipe of trial 0 as a file holds it."""
        return json.loads(json.dumps(asdict(self.subject.recipe(self.subject.assignments))))

    def _stage(
        self, label: str, numbers: Sequence[int], splits: int, progress: Progress, end: float
    ) -> None:
        # Scores over other splits are other figures: each says over how many.
        counted = "1 split" if splits == 1 else f"{splits} splits"
        title, unit = f"{self.subject.name}: {label}", f"best {self.subject.metric} on {counted}"
        with progress.stage(title, len(numbers), unit) as update:
            for place, number in enumerate(numbers):
                if place and time.perf_counter() > end:
                    break
                self._trial(number, splits)
                scores = self._scores(splits).values()
                update(place + 1, min(scores, key=self._loss, default=math.nan))

    def _trial(self, number: int, splits: int) -> None:
        if (number, splits) in self.done:
            return
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
                changes: list[str] = trial["set"]
                return changes
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
        size = self.subject.size(self.subject.recipe(changes))
        if self.parameters is not None and size > self.parameters:
            raise ConfigError(
                f"the model has {size:,} parameters, more than --parameters {self.parameters}; "
                "make it smaller with --set."
            )

    def _drawn(self, generator: np.random.Generator, number: int, splits: int) -> list[str]:
        """Settings drawn afresh, or those of one of the best with some drawn afresh."""
        drawn = [
            f"{key}={json.dumps(choices[generator.integers(len(choices))])}"
            for key, choices in self.subject.space.items()
        ]
        best = [earlier for earlier in self._ranked(splits) if earlier < number][:_PARENTS]
        if number <= self.explore or number % 2 or not best:
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


def sustained(figures: Tensor, epochs: Tensor, window: int, *, lower: bool = False) -> Tensor:
    """The best mean of ``window`` neighbouring epochs of every run, ``[runs]``.

    One lucky epoch of a jumping curve is no merit of a setting, and the best of many epochs
    favours settings that jump.

    Args:
        figures: ``[epochs, runs]``, only the first ``epochs`` of a run count; NaN is never best.
        epochs: ``[runs]``.
        window: how many epochs are averaged; all, of a shorter run.
        lower: whether less is better.

    Example:
        >>> curve = torch.tensor([0.5, 0.9, 0.5, 0.8, 0.8]).unsqueeze(1)
        >>> sustained(curve, torch.tensor([5]), window=2)
        tensor([0.8000])
    """
    best = []
    sign = -1.0 if lower else 1.0
    for curve, length in zip(figures.T, epochs.tolist(), strict=True):
        means = curve[:length].unfold(0, min(window, length), 1).mean(dim=-1)
        best.append(sign * (sign * means).nan_to_num(nan=-math.inf).max())
    return torch.stack(best)


def search_space(file: str, model: str, assignments: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The lists a trial draws from, by key; what is assigned stays as it is.

    Baselines have those of ``baseline`` and those under their own name; a forest only the latter.

    Example:
        >>> search_space("node_search.yaml", "gcnii", ["baseline.num_layers=8"])["baseline.theta"]
        [0.5, 1.0, 1.5]
    """
    found = shipped(file)
    shared = {} if model.startswith(("specformer", "forest")) else found["baseline"]
    given = {assignment.partition("=")[0] for assignment in assignments}
    lists = {**shared, **found.get(model, {})}
    return {key: choices for key, choices in lists.items() if key not in given}


def _read(path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Trials done before, by number and splits."""
    if not path.is_file():
        return {}
    try:
        found = [unsealed(line, needed=True) for line in read_json_lines(path)]
        whole = [{"of": {}} | trial | {"set": list(trial["set"])} for trial in found]
        return {(trial["trial"], trial["splits"]): trial for trial in whole}
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: damaged ({error}); remove it to start anew.") from error
