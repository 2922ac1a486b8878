r"""The base of all estimators: parameters, the job they describe, and the folder to save to."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from specformer.datasets import Split
from specformer.errors import ConfigError, GraphError, RunError, brief
from specformer.graphs.checks import as_host
from specformer.reports.html import write_report
from specformer.tasks.job import Job, Kind, Request, Workplace
from specformer.tasks.resolve import resolve
from specformer.tasks.train import keep, train_on
from specformer.training.runs.curves import plot_learned, run_table
from specformer.training.runs.environment import choose_device
from specformer.training.runs.folder import CONFIG, DATA, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The name of an estimator's data.
SOURCE = "data"


@contextmanager
def own_state() -> Iterator[None]:
    """A context, or decorator, for work in float32 with gradients, which may seed PyTorch.

    The user's random numbers, default type and gradient mode stay as they are.
    """
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.random.fork_rng([]), torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


class Estimator(BaseEstimator, ABC):
    """A scikit-learn estimator; see :class:`NodeClassifier` for an example.

    Args:
        model: ``"specformer"`` or the name of another model, as in ``specformer train --model``.
        recipe: a recipe's name or file; None for the default.
        metric: judges the model on the validation part; None for the default.
        epochs: the most epochs; None for the recipe's.
        learning_rate: None for the recipe's.
        settings: any other settings of the recipe, by their keys: ``{"model.num_heads": 2}``.
        runs: the number of models to train, each on its own split; predictions are their mean.
        validation_fraction: the share of the training part that picks the best epoch, unless the
            data say which nodes or graphs do.
        random_state: seeds splits and initial weights.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        cache: the folder of cached spectra; None to cache nothing.
    """

    kind: ClassVar[Kind]
    task: ClassVar[str]
    #: What is learned about, for error messages.
    things: ClassVar[str] = "nodes"
    #: Whether -1 among whole numbers is a missing label.
    skips_minus_one: ClassVar[bool] = True
    #: The labels that ``fit`` got beside the data; None if it took those of the data.
    _given: np.ndarray | None = None

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
            raise RunError(f"{folder}: a loaded estimator cannot be saved; copy its folder.")
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
        """Draw each head's response over the eigenvalues or, without one, the training losses."""
        check_is_fitted(self)
        return plot_learned(self._arrays, axes)

    def _repr_html_(self) -> str:
        """The parameters and, once fitted, the results."""
        shown = str(super()._repr_html_())
        return shown + run_table("Fitted", self.result_) if hasattr(self, "result_") else shown

    @classmethod
    def from_run(cls, run: RunFolder) -> Self:
        """A fitted estimator from a finished run, whose settings another ``fit`` takes again."""
        config = run.config()
        own = cls(
            config["model"],
            recipe=str(run.path.resolve() / CONFIG),
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
        """Load the models of a run."""

    @abstractmethod
    def _write_data(self, path: Path) -> None:
        """Write the data it was fitted on."""

    @abstractmethod
    def _outputs(self, data: Any) -> np.ndarray:
        """The mean prediction of all models, one row per node or graph."""

    def _name_classes(self) -> None:
        """Set the classes from a run's result."""

    def _keep_class_type(self) -> None:
        """Record in the result whether classes are words, numbers or truth values."""

    def _resolve(self) -> Job:
        """The job that the parameters describe."""
        self._check_parameters()
        request = Request(
            source=SOURCE,
            model=self.model,
            recipe=self.recipe,
            changes=self._changes(),
            task=self.task,
            metric=self.metric,
        )
        return resolve(
            request,
            int(self.runs),
            self.kind,
            seed=_seed(self.random_state),
            device=str(choose_device(self.device)),
            repeat=f"specformer.{self!r}.fit(…)".replace("\n", ""),
        )

    def _check_parameters(self) -> None:
        """Refuse values that would otherwise fail far from their names."""
        if not isinstance(self.runs, Integral):
            raise ConfigError(f"runs={self.runs!r} must be a whole number.")
        share = self.validation_fraction
        if not (isinstance(share, Real) and 0 < share < 1):
            raise ConfigError(f"validation_fraction={share!r} must be above 0 and below 1.")
        if not isinstance(self.settings, Mapping | None):
            told = "must map keys to values, as {'model.num_heads': 2} does"
            raise ConfigError(f"settings {told}, not {brief(self.settings)}.")

    def _changes(self) -> tuple[str, ...]:
        """What the parameters change in the recipe, as ``key=value``."""
        changes = dict(self.settings or {})
        for name in ("epochs", "learning_rate"):
            value, key = getattr(self, name), f"schedule.{name}"
            if value is None:
                continue
            if twice := {name, key} & changes.keys():
                raise ConfigError(f"{name} and settings[{twice.pop()!r}]: give one of them.")
            changes[key] = value
        return tuple(f"{key}={json.dumps(value, default=_plain)}" for key, value in changes.items())

    def _place(self) -> Workplace:
        cache = None if self.cache is None else Path(self.cache)
        return Workplace(choose_device(self.device), cache=cache)

    def _train(self, job: Job, work: Any, place: Workplace) -> None:
        """Train, and keep the outcome."""
        self._job, self._trained = job, (trained := train_on(job, work, place))
        self.result_, self._arrays = trained.result, trained.outcome.arrays
        self._keep_class_type()
        self.models_: list[Any] = [model.cpu().eval() for model in trained.outcome.models]
        self.validation_score_ = trained.result["val"]["mean"]

    def _refuse_own_labels(self) -> None:
        """Refuse to score by labels of the data, which may be others than those it has learned."""
        if self._given is not None:
            raise GraphError("fit got its labels as y; pass y here, too")

    def _true(self, y: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Given labels or numbers to compare with, ``[n]`` or ``[n, targets]``, and which count."""
        values = as_entries(y)
        if len(values) != count:
            raise GraphError(f"y must have {count} rows, not {len(values)}")
        values = values.reshape(-1) if is_column(values) else values
        if self.task == "classification" and values.ndim == 1:
            return values, is_label(values, self.skips_minus_one)
        return values, ~np.isnan(as_columns(values, count)).any(axis=1)

    def _split_train(
        self, job: Job, train: np.ndarray, test: np.ndarray, classes: np.ndarray
    ) -> list[Split]:
        """One split per run of training nodes or graphs ``[n]``, of which some validate.

        If none is to be tested, the test part is the validation part. ``classes`` ``[n]`` are
        spread evenly if each has at least two members and both parts have room for all classes.
        """
        if any(change.startswith("split=") for change in job.changes):
            how = f"{self.things} to learn from are given; validation_fraction splits them"
            raise ConfigError(f"settings['split'] would change nothing: the {how}.")
        numbers, splits = np.flatnonzero(train), []
        if len(numbers) < 2:
            raise GraphError(f"fewer than two {self.things} have a label; label more")
        counts = np.unique(own := classes[numbers], return_counts=True)[1]
        least = min(self.validation_fraction, 1 - self.validation_fraction) * len(numbers)
        even = own if counts.min() > 1 and least >= len(counts) else None
        for run in range(int(self.runs)):
            _, chosen = train_test_split(
                numbers,
                test_size=float(self.validation_fraction),
                random_state=(job.seed + run) % 2**32,
                stratify=even,
            )
            val = np.zeros_like(train)
            val[chosen] = True
            splits.append(Split(train & ~val, val, test if test.any() else val))
        return splits


def _seed(random_state: Any) -> int:
    if not isinstance(random_state, Integral):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise ConfigError(f"random_state={random_state} must not be negative.")
    return int(random_state)


def _plain(value: Any) -> Any:
    """A setting as JSON writes it: a number or an array of NumPy's, or else its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


class Classifier(ClassifierMixin):
    """Predicts classes, or several labels of 0 and 1; a mixin for an :class:`Estimator`."""

    task = "classification"
    kind: ClassVar[Kind]
    result_: Any
    classes_: Any
    predict_proba: Any

    def predict(self, X: Any) -> np.ndarray:
        """The class of every node or graph ``[n]``, or its labels ``[n, labels]``."""
        return self._predicted(self.predict_proba(X))

    def _predicted(self, chances: np.ndarray) -> np.ndarray:
        if isinstance(self.classes_, list):
            return np.asarray(chances > 0.5).astype(np.int64)
        found: np.ndarray = self.classes_[chances.argmax(axis=1)]
        return found

    def _name_classes(self) -> None:
        names, count = self.result_.get("classes"), len(self.result_.get("targets", ()))
        if names is None and self.kind == "molecules" and count == 1:
            names = (0, 1)
        kind = self.result_.get("class_type")
        self.classes_ = zeros_and_ones(count) if names is None else as_labels(names, kind)

    def _keep_class_type(self) -> None:
        if not isinstance(self.classes_, list):
            self.result_["class_type"] = self.classes_.dtype.kind


class Regressor(RegressorMixin):
    """Predicts numbers; a mixin for an :class:`Estimator`."""

    task = "regression"
    _outputs: Any

    def predict(self, X: Any) -> np.ndarray:
        """The number of every node or graph ``[n]``, or its numbers ``[n, targets]``."""
        return self._predicted(self._outputs(X))

    def _predicted(self, found: np.ndarray) -> np.ndarray:
        return found[:, 0] if found.shape[1] == 1 else found


def zeros_and_ones(count: int) -> list[np.ndarray]:
    """The classes of ``count`` labels."""
    return [np.array([0, 1])] * count


def as_class_numbers(y: Any, skips_minus_one: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Class numbers ``[n]``, -1 for a missing label, and the labels of classes 0, 1, ….

    None, NaN and, with ``skips_minus_one`` among whole numbers, -1 are missing labels. ``y`` may be
    a column ``[n, 1]``.

    Example:
        >>> numbers, classes = as_class_numbers(["cat", "dog", None, "cat"])
        >>> numbers.tolist(), classes.tolist()
        ([0, 1, -1, 0], ['cat', 'dog'])
    """
    labels = as_entries(y).reshape(-1)
    known = is_label(labels, skips_minus_one)
    if not known.any():
        raise GraphError("y has no labels; label some")
    classes, numbers = np.unique(np.array(labels[known].tolist()), return_inverse=True)
    if len(classes) == 1 and not known.all() and (labels[~known] == -1).all():
        told = f"y holds -1, which is no label, and one class, {classes[0]}"
        raise GraphError(f"{told}; call the classes 0 and 1")
    if classes.dtype.kind == "f" and 2 * len(classes) > known.sum() and (classes % 1 != 0).any():
        told = f"y holds {len(classes)} different numbers, which are not classes"
        raise GraphError(f"{told}; learn numbers with a regressor")
    found = np.full(len(labels), -1, dtype=np.int64)
    found[known] = numbers.reshape(-1)
    return found, classes


def as_entries(y: Any) -> np.ndarray:
    """Given labels or numbers as an array; a list of words and NaN keeps its NaN."""
    given = as_host(y)
    entries = np.asarray(given)
    if entries.dtype.kind == "U" and not hasattr(given, "dtype"):
        return np.asarray(given, dtype=object)
    return entries


#: None, NaN and pandas' missing values, as texts: pandas.NA cannot be compared.
_MISSING = ("None", "nan", "NaT", "<NA>")


def is_label(labels: np.ndarray, skips_minus_one: bool = True) -> np.ndarray:
    """Which entries ``[n]`` are labels: not None, NaN, NA or, with ``skips_minus_one``, -1."""
    if labels.dtype.kind == "O":
        return np.array([isinstance(x, str) or str(x) not in _MISSING for x in labels.tolist()])
    if labels.dtype.kind == "i":
        return labels != -1 if skips_minus_one else np.ones(len(labels), dtype=bool)
    known: np.ndarray = labels == labels  # not NaN
    return known


def is_column(y: Any) -> bool:
    """Whether targets are one per node or graph, ``[n]`` or ``[n, 1]``."""
    return np.ndim(y) == 1 or (np.ndim(y) == 2 and np.shape(y)[1] == 1)


#: Types of classes by the kind of their array, in which names are read.
_CLASS_TYPES: dict[str, Callable[[str], Any]] = {
    "b": "True".__eq__, "i": int, "u": int, "f": float, "U": str,
}  # fmt: skip


def as_labels(names: Any, kind: str | None = None) -> np.ndarray:
    """Names of classes as labels of this kind of array; without one, whole numbers if all are.

    Example:
        >>> as_labels(["1", "2"]), as_labels(["01", "1"]), as_labels(["1.0", "2.5"], "f")
        (array([1, 2]), array(['01', '1'], dtype='<U2'), array([1. , 2.5]))
    """
    texts = list(map(str, names))
    if kind in _CLASS_TYPES:
        return np.array(list(map(_CLASS_TYPES[kind], texts)))
    try:
        numbers = list(map(int, texts))
    except ValueError:
        return np.array(texts)
    return np.array(numbers if list(map(str, numbers)) == texts else texts)


def as_columns(y: Any, count: int) -> np.ndarray:
    """Numbers or labels ``[count, targets]`` in float64."""
    entries = as_entries(y)
    if entries.dtype.kind == "O":
        known = is_label(entries.reshape(-1)).reshape(entries.shape)
        entries = np.where(known, entries, np.nan)
    try:
        values = entries.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"y must hold numbers: {error}") from None
    if values.ndim not in (1, 2) or len(values) != count:
        raise GraphError(f"y must have {count} rows, not shape {list(values.shape)}")
    return values.reshape(count, -1)
