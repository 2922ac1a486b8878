r"""A job as a search tries its settings."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from specformer.tasks.job import Job, Workplace
from specformer.tasks.recipes.settings import build, override, shipped
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import summary


@dataclass(frozen=True)
class Measured:
    """How good a setting is on validation data.

    ``score`` is what trials are ranked by, None where training diverged; ``val`` the summary of
    what training gives; ``epochs`` the mean over runs.
    """

    score: float | None
    val: dict[str, Any] | None
    epochs: float


class Trials(ABC):
    """A job whose settings are searched. Test data are not looked at."""

    #: The file of the lists to draw from, and the neighbouring epochs whose mean figure counts.
    space_file: ClassVar[str]
    window: ClassVar[int]
    #: Splits that a trial trains on, unless someone says.
    splits: ClassVar[int]

    #: The name of the data, and what a score is.
    name: str
    metric: str
    #: What tells the models apart that trials start from; None for fresh ones.
    begun_from: str | None = None

    def __init__(self, job: Job, place: Workplace) -> None:
        self.source, self.model, self.seed, self.place = job.source, job.model, job.seed, place
        #: ``key=value`` changes that all trials have.
        self.assignments = ["monitor=metric", *job.changes]
        #: The lists that trials draw from, by key.
        self.space = search_space(self.space_file, self.space_of(job), self.assignments)
        self._settings = job.settings

    def space_of(self, job: Job) -> str:
        """The name of the lists in the file: the model's, unless it has several."""
        return job.model

    @property
    def lower(self) -> bool:
        """Whether less of the metric is better."""
        return metric_named(self.metric).lower

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

    def judged(self, figures: Tensor, epochs: Tensor, kept: Sequence[float]) -> Measured:
        """The mean over runs of what :func:`sustained` gives, and a summary of what was kept."""
        score = float(sustained(figures, epochs, self.window, lower=self.lower).mean())
        mean = float(epochs.double().mean())
        return Measured(score if math.isfinite(score) else None, summary(kept), mean)


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
