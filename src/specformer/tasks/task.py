r"""The questions that every kind of learning answers: nodes, graphs and signals alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from specformer.datasets import Split
from specformer.errors import ConfigError
from specformer.tasks.job import Workplace
from specformer.tasks.source import Kind
from specformer.training.evaluation.graph_metrics import metric_named

if TYPE_CHECKING:
    from specformer.tasks.estimate import Estimate
    from specformer.tasks.job import Job, Request
    from specformer.tasks.predictions import PredictionRequest, Predictions
    from specformer.tasks.trials import Trials
    from specformer.training.runs.folder import RunFolder

Work = TypeVar("Work")

#: Targets whose predictions a report shows.
SHOWN = 4


@dataclass(frozen=True)
class Outcome:
    """What training gave: figures of all runs, what reports draw, and one model per run.

    ``seconds_before`` went into epochs which checkpoints held already. A result says ``more``
    beside the row, and JSON documents by file name are kept ``beside`` each run's model.
    """

    row: dict[str, Any]
    arrays: dict[str, np.ndarray]
    models: Sequence[nn.Module]
    seconds_before: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)
    beside: Sequence[Mapping[str, Any]] = ()


class Task(ABC, Generic[Work]):
    """One kind of learning.

    ``train``, ``resume``, ``predict`` and ``tune`` are written once, over these methods.
    ``Work`` is what the data, the splits and the spectra of a job are held in.
    """

    kind: ClassVar[Kind]
    #: What such a source is called in messages, and several of them.
    noun: ClassVar[str]
    plural: ClassVar[str]
    models: ClassVar[Sequence[str]]
    #: How many runs there are unless someone says; None where the data say.
    runs: ClassVar[int | None]
    #: The options of ``train`` and ``predict`` that not every task has.
    options: ClassVar[frozenset[str]]

    def usual_runs(self, source: str) -> int | None:  # noqa: ARG002
        """How many runs of a source there are unless someone says."""
        return self.runs

    @abstractmethod
    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:
        """The data class of a model's recipes, and its groups that this model does not use.

        None stands for any model.
        """

    def concerning(self, model: str, changes: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """Those of several models' changes that this one has a use for."""
        return changes

    @abstractmethod
    def resolve(self, request: Request) -> tuple[str, Any]:
        """The name of the recipe that a request means, and the recipe, a frozen data class."""

    @abstractmethod
    def read_recipe(self, model: str, settings: Mapping[str, Any], where: str) -> Any:
        """The recipe that plain settings are; ``where`` names their file in errors."""

    def refuse_workers(self, job: Job) -> None:
        """Refuse a job that several processes cannot train together."""
        raise ConfigError(f"{job.source}: {self.plural} train in one process only.")

    def spectra_together(self, job: Job) -> bool:  # noqa: ARG002
        """Whether several processes compute spectra together; else the first does, for all."""
        return False

    @abstractmethod
    def load(self, job: Job, place: Workplace) -> Work:
        """Read the data and split them. Refuses all that cannot be trained on."""

    def load_beside(self, work: Work, job: Job, place: Workplace) -> Work:  # noqa: ARG002
        """As :meth:`load`, for another model on data that ``work`` holds already."""
        return self.load(job, place)

    @abstractmethod
    def overview(self, work: Work) -> dict[str, Any]:
        """What was read, see :mod:`specformer.tasks.overview`."""

    def estimate(self, work: Work, device: torch.device) -> Estimate | None:  # noqa: ARG002
        """About what the work will take; None where it is little."""
        return None

    @abstractmethod
    def with_spectra(self, work: Work, place: Workplace) -> Work:
        """The work with the eigenpairs that its model needs."""

    @abstractmethod
    def fit(self, work: Work, place: Workplace, checkpoint: Path | None) -> Outcome:
        """Train all runs.

        ``checkpoint`` is the path of the state's files without its ending; a task may append to
        its name. State that is there already is taken up.
        """

    @abstractmethod
    def summarise(self, work: Work, outcome: Outcome) -> dict[str, Any]:
        """What a result says of this task, beside what every result says."""

    @abstractmethod
    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        """Predictions of a finished run's models."""

    @abstractmethod
    def trials(self, job: Job, place: Workplace) -> Trials:
        """The job as a search tries its settings; refused where nothing validates them."""


def check_parts(
    name: str, y: np.ndarray | None, metric: str | None, splits: Sequence[Split], things: str
) -> None:
    """Refuse, before anything is trained, parts that the metric says nothing about.

    ``y`` has a row for each of the ``things``, nodes or graphs.
    """
    assert y is not None
    columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    judge = metric_named(metric or "accuracy")
    for split in splits:
        for part in (split.val, split.test):
            try:
                judge.check(columns[part], things)
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from error


def target_names(names: Sequence[str] | None, count: int) -> list[str]:
    """What targets are called: as in their file, or by number."""
    return list(names or (f"target {number}" for number in range(count)))
