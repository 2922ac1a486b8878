r"""What every task has: steps of training, settings to search, predictions as a table."""

from __future__ import annotations

import csv
import io
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import Split
from specformer.errors import ConfigError
from specformer.graphs import Columns
from specformer.tasks.job import Job, Kind, Request, Workplace, read_columns
from specformer.tasks.recipes.settings import build, override, shipped
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import summary
from specformer.training.runs.folder import CONFIG, RunFolder

if TYPE_CHECKING:
    from specformer.tasks.estimate import Estimate

Work = TypeVar("Work")

#: Targets whose predictions a report shows.
SHOWN = 4


@dataclass(frozen=True)
class Outcome:
    """What training gave: figures of all runs, arrays for the report, and one model per run.

    ``seconds_before`` went into epochs that checkpoints held already. ``more`` goes into the result
    beside the row, and ``beside`` has JSON documents by file name to keep with each run's model.
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
    ``Work`` holds the data, the splits and the spectra of a job.
    """

    kind: ClassVar[Kind]
    #: What such a source is called in messages, and several of them.
    noun: ClassVar[str]
    plural: ClassVar[str]
    models: ClassVar[Sequence[str]]
    #: The usual number of runs; None where the data decide.
    runs: ClassVar[int | None]
    #: Those options of ``train`` and ``predict`` that not every task has.
    options: ClassVar[frozenset[str]]

    def usual_runs(self, source: str) -> int | None:  # noqa: ARG002
        """The usual number of runs on a source."""
        return self.runs

    @abstractmethod
    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:
        """The data class of a model's recipes, and its groups that this model does not use.

        Without a model, all groups are used.
        """

    def concerning(self, model: str, changes: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """Those of the changes for several models that apply to this one."""
        return changes

    @abstractmethod
    def resolve(self, request: Request) -> tuple[str, Any]:
        """The name of the recipe that a request means, and the recipe, a frozen data class."""

    def read_recipe(self, model: str, settings: Mapping[str, Any], where: str) -> Any:
        """The recipe of plain settings; ``where`` names their file in errors."""
        return build(self.recipe_class(model)[0], settings, where)

    def refuse_workers(self, job: Job) -> None:
        """Refuse a job that several processes cannot train together."""
        raise ConfigError(f"{job.source}: {self.plural} train in one process only.")

    def spectra_together(self, job: Job) -> bool:  # noqa: ARG002
        """Whether several processes compute spectra together; else the first does, for all."""
        return False

    def loads_together(self, job: Job) -> bool:  # noqa: ARG002
        """Whether several processes read a source together; else the first does before others."""
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
        """About how long the work will take, and how much memory; None where it is little."""
        return None

    @abstractmethod
    def with_spectra(self, work: Work, place: Workplace, beside: Work | None = None) -> Work:
        """The work with the eigenpairs that its model needs, from ``beside`` if it has them."""

    @abstractmethod
    def fit(
        self, work: Work, place: Workplace, checkpoint: Path | None, label: str | None = None
    ) -> Outcome:
        """Train all runs.

        ``checkpoint`` is the path of the state's files without its ending; a task may append to
        its name. Training goes on from a state that is there. ``label`` is the name that arrays
        are kept under, if not the model's.
        """

    @abstractmethod
    def summarise(self, work: Work, outcome: Outcome) -> dict[str, Any]:
        """The keys of a result that this task adds to those of every result."""

    @abstractmethod
    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        """Predictions of a finished run's models."""

    @abstractmethod
    def trials(self, job: Job, place: Workplace) -> Trials:
        """What a search of the job's settings tries; refused where there is no validation."""


def check_parts(
    name: str, y: np.ndarray | None, metric: str | None, splits: Sequence[Split], things: str
) -> None:
    """Refuse parts of a split for which the metric is not defined.

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
    """The names of targets: those in their file, or numbers."""
    return list(names or (f"target {number}" for number in range(count)))


def parameter_count(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(parameter.numel() for parameter in model.parameters())


@dataclass(frozen=True)
class Measured:
    """How good a setting is on validation data.

    ``score`` ranks trials and is None where training diverged; ``val`` is the summary of the kept
    models' validation figures; ``epochs`` the mean over runs.
    """

    score: float | None
    val: dict[str, Any] | None
    epochs: float


class Trials(ABC):
    """A job whose settings are searched. Test data are not looked at."""

    #: The file of the lists to draw from, and the neighbouring epochs whose mean figure counts.
    space_file: ClassVar[str]
    window: ClassVar[int]
    #: The usual number of splits that a trial trains on.
    splits: ClassVar[int]

    #: The data, as :meth:`Task.load` gives them, their name, and the metric of scores.
    work: Any
    name: str
    metric: str
    #: A fingerprint of the models that trials start from; None for fresh ones.
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
        """The job's recipe, a data class, with these changes, checked."""
        settings = override(asdict(self._settings), changes)
        return build(type(self._settings), settings, "the search")

    @property
    @abstractmethod
    def runs(self) -> int:
        """The usual number of splits that finalists train on."""

    @abstractmethod
    def size(self, recipe: Any) -> int:
        """The number of its model's parameters; refuses settings that no model can have."""

    @abstractmethod
    def measure(self, recipe: Any, splits: int) -> Measured:
        """Train on that many splits and measure on the validation part of each."""

    def judged(self, figures: Tensor, epochs: Tensor, kept: Sequence[float]) -> Measured:
        """The mean over runs of what :func:`sustained` gives, and a summary of the kept figures."""
        score = float(sustained(figures, epochs, self.window, lower=self.lower).mean())
        mean = float(epochs.double().mean())
        return Measured(score if math.isfinite(score) else None, summary(kept), mean)


def sustained(figures: Tensor, epochs: Tensor, window: int, *, lower: bool = False) -> Tensor:
    """The best mean of ``window`` neighbouring epochs of every run, ``[runs]``.

    The best single epoch would favour settings whose curves jump.

    Args:
        figures: ``[epochs, runs]``, only the first ``epochs`` of a run count; NaN is never best.
        epochs: ``[runs]``.
        window: how many epochs are averaged; all, of a shorter run.
        lower: whether less is better.
    """
    best = []
    sign = -1.0 if lower else 1.0
    for curve, length in zip(figures.T, epochs.tolist(), strict=True):
        means = curve[:length].unfold(0, min(window, length), 1).mean(dim=-1)
        best.append(sign * (sign * means).nan_to_num(nan=-math.inf).max())
    return torch.stack(best)


def search_space(file: str, model: str, assignments: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The lists a trial draws from, by key, without those of keys that are assigned.

    Baselines have the lists of ``baseline`` and those of their own name; a forest only the latter.
    """
    found = shipped(file)
    shared = {} if model.startswith(("specformer", "forest")) else found["baseline"]
    given = {assignment.partition("=")[0] for assignment in assignments}
    lists = {**shared, **found.get(model, {})}
    return {key: choices for key, choices in lists.items() if key not in given}


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf)", re.IGNORECASE)


@dataclass(frozen=True)
class PredictionRequest:
    """What to predict, and how.

    Args:
        graph: another graph with the same features, or a file of molecules; None for the data
            trained on.
        smiles: of molecules, some written here.
        spectrum, degree: of nodes, what replaces the recipe's; a model that was trained with a
            decomposition can predict without one.
        columns: which column of the file is what, where that differs from the training data.
        pairs: of links, a table of two columns whose pairs of nodes are scored.
        top: of links, how many of the likeliest missing links to name.
    """

    graph: str | None = None
    smiles: Sequence[str] = ()
    spectrum: str | None = None
    degree: int | None = None
    columns: Columns = field(default_factory=Columns)
    pairs: Path | None = None
    top: int | None = None

    def source_of(self, run: RunFolder) -> tuple[str, Columns]:
        """The data to predict for with a run's models, and which of its columns is what."""
        config = run.config()
        known = read_columns(config, str(run.path / CONFIG))
        return self.graph or str(config["source"]), self.columns.over(known)


@dataclass(frozen=True)
class Predictions:
    """CSV text, its number of rows, and a sentence for each row without a prediction.

    Of several workers, each has the text of its own rows; ``rows`` counts those of all.
    """

    text: str
    rows: int
    problems: list[str] = field(default_factory=list)


def csv_text(header: Sequence[str] | None, rows: Iterable[Sequence[str | None]]) -> str:
    r"""A table as CSV, with an apostrophe before what a spreadsheet would take for a formula.

    Workers other than the first have no header.

    Example:
        >>> csv_text(["id", "prediction"], [["a,b", "1"], ["=1+1", "-2e3"]])
        'id,prediction\n"a,b",1\n\'=1+1,-2e3\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header is not None:
        writer.writerow([_no_formula(name) for name in header])
    writer.writerows([_no_formula(cell) for cell in row] for row in rows)
    return text.getvalue()


def _no_formula(cell: str | None) -> str | None:
    if cell and cell[0] in "=+-@\t\r" and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def target_columns(found: Tensor, targets: Sequence[str], *, labels: bool) -> dict[str, list[str]]:
    """By name, the cells of predictions ``[models, rows, targets]``.

    A column ``prediction`` per target, with ``probability`` where it is a label of 0 or 1, and
    ``spread``, the standard deviation over the models, where there are several.
    """
    mean, columns = found.mean(dim=0), {}
    spreads = spread(found) if len(found) > 1 else None
    for number, target in enumerate(targets):
        name, value = "" if len(targets) == 1 else f"({target})", mean[:, number]
        if labels:
            columns[f"prediction{name}"] = cells((value > 0.5).int(), "d")
            columns[f"probability{name}"] = cells(value, ".6f")
        else:
            columns[f"prediction{name}"] = cells(value, ".6g")
        if spreads is not None:
            columns[f"spread{name}"] = cells(spreads[:, number], ".3g")
    return columns


def spread(found: Tensor) -> Tensor:
    """The standard deviation over models ``[models, rows, columns]``; there may be no row."""
    return found.std(dim=0) if found.numel() else found[0]


def cells(values: Tensor, form: str) -> list[str]:
    """Numbers as text, in one format."""
    return [format(value, form) for value in values.tolist()]
