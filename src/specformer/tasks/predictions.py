r"""Predictions as a table that spreadsheets read."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from specformer.graphs import Columns
from specformer.tasks.job import read_columns
from specformer.training.runs.folder import CONFIG, RunFolder

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
        columns: which column of the file is what, where that differs from what was trained on.
        pairs: of links, a table of two columns whose pairs of nodes are scored.
        top: of links, how many of the likeliest that are missing to name.
    """

    graph: str | None = None
    smiles: Sequence[str] = ()
    spectrum: str | None = None
    degree: int | None = None
    columns: Columns = field(default_factory=Columns)
    pairs: Path | None = None
    top: int | None = None

    def source_of(self, run: RunFolder) -> tuple[str, Columns]:
        """What to predict for with a run's models, and which of its columns is what."""
        config = run.config()
        known = read_columns(config, str(run.path / CONFIG))
        return self.graph or str(config["source"]), self.columns.over(known)


@dataclass(frozen=True)
class Predictions:
    """CSV text, its number of rows, and what is wrong with which of them.

    Of several workers each has the text of its own rows, but all count all of them.
    """

    text: str
    rows: int
    problems: list[str] = field(default_factory=list)


def csv_text(header: Sequence[str] | None, rows: Iterable[Sequence[str | None]]) -> str:
    r"""A table as CSV; an apostrophe before what a spreadsheet would take for a formula.

    Without a header it is the rest of one that another worker begins.

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
