r"""What all estimators share: parameters, the job they mean, and the folder they are kept in."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from specformer.datasets import Split
from specformer.errors import GraphError, RunError
from specformer.reports.html import write_report
from specformer.tasks.job import Job, Kind, Request, Workplace
from specformer.tasks.resolve import resolve
from specformer.tasks.train import keep, train_on
from specformer.training.runs.curves import plot_learned, run_table
from specformer.training.runs.environment import choose_device
from specformer.training.runs.folder import DATA, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What an estimator's data are called, which have no name of their own.
SOURCE = "data"


class Estimator(BaseEstimator, ABC):
    """A model as scikit-learn knows them; see :class:`NodeClassifier` and its like.

    Args:
        model: ``"specformer"`` or the name of another model, as ``specformer train --model``.
        recipe: a recipe's name or file; None for the usual one.
        metric: what the model is judged by on the validation part; None for the usual one.
        epochs: at most this many; None for the recipe's.
        learning_rate: None for the recipe's.
        settings: any other settings of the recipe, by their keys: ``{"model.num_heads": 2}``.
        runs: how many models are trained, each on a split of its own; predictions are their mean.
        validation_fraction: the share of the training part that picks the best epoch, where
            nothing else says which do.
        random_state: of splits and initial weights.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        cache: the folder that keeps spectra; None for none.
    """

    kind: ClassVar[Kind]
    task: ClassVar[str]
    #: What is learned about, in errors.
    things: ClassVar[str] = "nodes"

    def __init__(
        self,
        model: str = "specformer",
        *,
        recipe: str | None = None,
        metric: str | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        settings: Mapping[str, Any] | None = None,
        runs: int = 1,
        validation_fraction: float = 0.2,
        random_state: Any = 0,
        device: str = "auto",
        cache: str | Path | None = None,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.metric = metric
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.settings = settings
        self.runs = runs
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.cache = cache

    def save(self, folder: str | Path) -> Path:
        """Write a run folder as ``specformer train`` does, with the data and a report.

        :func:`specformer.load`, ``specformer predict`` and ``specformer report`` read it.
        """
        check_is_fitted(self)
        if not hasattr(self, "_trained"):
            raise RunError(f"{folder}: this estimator was loaded; copy the folder it came from.")
        target = Path(folder).resolve()
        job = replace(self._job, source=str(target / DATA))
        run = RunFolder.create(target, job.config)
        self._write_data(target / DATA)
        keep(run, job, self._trained)
        return target

    def report(self, folder: str | Path) -> Path:
        """Save it and write an HTML report; returns the report's path."""
        return write_report(RunFolder.open(self.save(folder)))

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw what was learned: each head's response over the eigenvalues, or training losses."""
        check_is_fitted(self)
        return plot_learned(self._arrays, axes)

    def _repr_html_(self) -> str:
        """The parameters and, once it is fitted, what it reached."""
        shown = str(super()._repr_html_())
        return shown + run_table("Fitted", self.result_) if hasattr(self, "result_") else shown

    @classmethod
    def from_run(cls, run: RunFolder) -> Self:
        """A fitted estimator from a finished run."""
        config = run.config()
        own = cls(
            config["model"],
            recipe=config["recipe"],
            runs=len(run.model_folders()),
            random_state=config["seed"],
        )
        own.result_ = run.result("settings", "val", "task")
        own.validation_score_ = own.result_["val"]["mean"]
        own._arrays = run.outputs()
        own._name_classes()
        own._read_models(run)
        return own

    @abstractmethod
    def _read_models(self, run: RunFolder) -> None:
        """Take over a run's models."""

    @abstractmethod
    def _write_data(self, path: Path) -> None:
        """Write what it was fitted on."""

    @abstractmethod
    def _outputs(self, data: Any) -> np.ndarray:
        """The mean prediction of all models, one row per node or graph."""

    def _name_classes(self) -> None:
        """Take the names of classes from a run's result."""

    def _resolve(self) -> Job:
        """The job that the parameters mean."""
        given = {"schedule.epochs": self.epochs, "schedule.learning_rate": self.learning_rate}
        changes = {key: value for key, value in given.items() if value is not None}
        changes |= dict(self.settings or {})
        request = Request(
            source=SOURCE,
            model=self.model,
            recipe=self.recipe,
            changes=tuple(f"{key}={json.dumps(value)}" for key, value in changes.items()),
            task=self.task,
            metric=self.metric,
        )
        return resolve(
            request,
            self.runs,
            self.kind,
            seed=_seed(self.random_state),
            device=str(choose_device(self.device)),
            repeat=f"specformer.{self!r}.fit(…)".replace("\n", ""),
        )

    def _place(self) -> Workplace:
        cache = None if self.cache is None else Path(self.cache)
        return Workplace(choose_device(self.device), cache=cache)

    def _train(self, job: Job, work: Any, place: Workplace) -> None:
        """Train, and keep what that gave."""
        self._job, self._trained = job, (trained := train_on(job, work, place))
        self.result_, self._arrays = trained.result, trained.outcome.arrays
        self.models_: list[Any] = [model.cpu().eval() for model in trained.outcome.models]
        self.validation_score_ = trained.result["val"]["mean"]

    def _parted(self, train: np.ndarray, test: np.ndarray, classes: np.ndarray) -> list[Split]:
        """Splits of training nodes or graphs ``[n]``, of which some validate, one per run.

        Without any to test on, those that validate stand in their place; ``classes`` ``[n]`` are
        spread evenly, where each has two at least and both parts have room for all.
        """
        numbers, splits = np.flatnonzero(train), []
        if len(numbers) < 2:
            raise GraphError(f"fewer than two {self.things} have a label to learn from; give more")
        counts = np.unique(own := classes[numbers], return_counts=True)[1]
        least = min(self.validation_fraction, 1 - self.validation_fraction) * len(numbers)
        even = own if counts.min() > 1 and least >= len(counts) else None
        for run in range(self.runs):
            _, chosen = train_test_split(
                numbers,
                test_size=self.validation_fraction,
                random_state=_seed(self.random_state) + run,
                stratify=even,
            )
            val = np.zeros_like(train)
            val[chosen] = True
            splits.append(Split(train & ~val, val, test if test.any() else val))
        return splits


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


class Classifier(ClassifierMixin):
    """Classes, or several labels of 0 and 1; for an :class:`Estimator`."""

    task = "classification"
    kind: ClassVar[Kind]
    result_: Any
    classes_: Any
    predict_proba: Any

    def predict(self, X: Any) -> np.ndarray:
        """The class of every node or graph ``[n]``, or its labels ``[n, labels]``."""
        chances = self.predict_proba(X)
        if isinstance(self.classes_, list):
            return np.asarray(chances > 0.5).astype(np.int64)
        return self.classes_[chances.argmax(axis=1)]

    def _name_classes(self) -> None:
        names, count = self.result_.get("classes"), len(self.result_.get("targets", ()))
        if names is None and self.kind == "molecules" and count == 1:
            names = (0, 1)
        self.classes_ = zeros_and_ones(count) if names is None else as_labels(names)


class Regressor(RegressorMixin):
    """Numbers; for an :class:`Estimator`."""

    task = "regression"
    _outputs: Any

    def predict(self, X: Any) -> np.ndarray:
        """The number of every node or graph ``[n]``, or its numbers ``[n, targets]``."""
        found: np.ndarray = self._outputs(X)
        return found[:, 0] if found.shape[1] == 1 else found


def zeros_and_ones(count: int) -> list[np.ndarray]:
    """The classes of so many labels."""
    return [np.array([0, 1])] * count


def encoded(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Class numbers ``[n]``, -1 where there is no label, and the labels of 0, 1, ….

    None, NaN and, among whole numbers, -1 are no label.

    Example:
        >>> numbers, classes = encoded(["cat", "dog", None, "cat"])
        >>> numbers.tolist(), classes.tolist()
        ([0, 1, -1, 0], ['cat', 'dog'])
    """
    labels = np.asarray(y)
    known = is_label(labels)
    if not known.any():
        raise GraphError("y has no label to learn")
    classes, numbers = np.unique(np.array(labels[known].tolist()), return_inverse=True)
    if classes.dtype.kind == "f" and 2 * len(classes) > known.sum() and (classes % 1 != 0).any():
        told = f"y holds {len(classes)} different numbers, which are no classes"
        raise GraphError(f"{told}; learn numbers with a regressor")
    found = np.full(len(labels), -1, dtype=np.int64)
    found[known] = numbers.reshape(-1)
    return found, classes


def is_label(labels: np.ndarray) -> np.ndarray:
    """Where ``[n]`` there is a label: not None, NaN nor, among whole numbers, -1."""
    if labels.dtype.kind == "O":
        return np.array([label is not None and label == label for label in labels.tolist()])
    none: np.ndarray = labels == -1 if labels.dtype.kind == "i" else labels != labels  # NaN
    return ~none


def as_labels(names: Any) -> np.ndarray:
    """Names of classes as labels: whole numbers where all of them are."""
    try:
        return np.array([int(name) for name in names])
    except ValueError:
        return np.array(names)


def as_columns(y: Any, count: int) -> np.ndarray:
    """Numbers or labels ``[n, targets]`` in float64, of as many rows as there are."""
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"y must hold numbers: {error}") from None
    if values.ndim not in (1, 2) or len(values) != count:
        raise GraphError(f"y must have {count} rows, not shape {list(values.shape)}")
    return values.reshape(count, -1)
