r"""What every kind of job has: data to train on, an outcome, predictions as a table."""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import Split
from specformer.errors import ConfigError
from specformer.graphs import Columns
from specformer.tasks.job import Job, Kind, Request, Workplace, read_columns, refuse_missing
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.runs.folder import CONFIG, RunFolder

if TYPE_CHECKING:
    from specformer.tasks.estimate import Estimate

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


class Work(ABC):
    """A job's model and data, read and split, and all that is done with them.

    ``train``, ``resume``, ``tune``, ``compare`` and the paper's tables are written once, over these
    methods. Each kind of job has its own class. An object never changes: methods return another.
    """

    kind: ClassVar[Kind]
    #: What such a source is called in messages, and several of them.
    noun: ClassVar[str]
    plural: ClassVar[str]
    models: ClassVar[Sequence[str]]
    #: Those options of ``train`` and ``predict`` that not every kind has.
    options: ClassVar[frozenset[str]]

    @classmethod
    def usual_runs(cls, source: str) -> int | None:  # noqa: ARG003
        """The usual number of runs on a source; None where the data decide."""
        return None

    @classmethod
    @abstractmethod
    def recipe_class(cls, model: str | None) -> tuple[type, Sequence[str]]:
        """The data class of a model's recipes, and those settings that this model does not use.

        Without a model, all are used.
        """

    @classmethod
    def concerning(cls, model: str, changes: Sequence[str]) -> Sequence[str]:  # noqa: ARG003
        """Those of the changes for several models that apply to this one."""
        return changes

    @classmethod
    @abstractmethod
    def resolve(cls, request: Request) -> tuple[str, Any]:
        """The name of the recipe that a request means, and the recipe, a frozen data class."""

    @classmethod
    def refuse_workers(cls, job: Job) -> None:
        """Refuse a job that several processes cannot train together."""
        raise ConfigError(f"{job.source}: {cls.plural} train in one process only.")

    @classmethod
    def together(cls, job: Job) -> tuple[bool, bool]:  # noqa: ARG003
        """Whether several processes read the source together, and compute spectra together.

        What they do not do together, the first does before the others.
        """
        return False, False

    @classmethod
    @abstractmethod
    def load(cls, job: Job, place: Workplace) -> Self:
        """Read the data and split them. Refuses all that cannot be trained on."""

    def beside(self, job: Job, place: Workplace) -> Self:
        """As :meth:`load`, for another model on the same source; data are not read again."""
        return self.load(job, place)

    @abstractmethod
    def overview(self) -> dict[str, Any]:
        """What was read, see :mod:`specformer.tasks.overview`."""

    def estimate(self, device: torch.device) -> Estimate | None:  # noqa: ARG002
        """About how long the work will take, and how much memory.

        None where it is little, and where it is too much, see :meth:`refusal`.
        """
        return None

    def refusal(self, device: torch.device) -> str | None:  # noqa: ARG002
        """Why the work cannot be done on a device, and what to do; None if it can."""
        return None

    @abstractmethod
    def with_spectra(self, place: Workplace, beside: Self | None = None) -> Self:
        """The work with the eigenpairs that its model needs, from ``beside`` if it has them."""

    @abstractmethod
    def train(self, place: Workplace, checkpoint: Path | None, label: str | None = None) -> Outcome:
        """Train all runs.

        ``checkpoint`` is the path of the state's files without its ending; a work may append to
        its name. Training goes on from a state that is there. ``label`` is the name that arrays
        are kept under, if not the model's.
        """

    @abstractmethod
    def summarise(self, outcome: Outcome) -> dict[str, Any]:
        """The keys of a result that this kind adds to those of every result."""


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
        if not (self.graph or self.smiles):
            refuse_missing(str(config["source"]), run.path)
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
