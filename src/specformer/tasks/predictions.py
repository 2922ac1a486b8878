r"""Predictions as a table that spreadsheets read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PredictionRequest:
    """What to predict, and how.

    Args:
        graph: another graph with the same features, or a file of molecules; None for the data
            trained on.
        smiles: of molecules, some written here.
        spectrum, degree: of nodes, what replaces the recipe's; a model that was trained with a
            decomposition can predict without one.
    """

    graph: str | None = None
    smiles: Sequence[str] = ()
    spectrum: str | None = None
    degree: int | None = None


@dataclass(frozen=True)
class Predictions:
    """CSV text, its number of rows, and what is wrong with which of them."""

    text: str
    rows: int
    problems: list[str] = field(default_factory=list)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    r"""A table as CSV.

    Example:
        >>> csv_text(["id", "prediction"], [["a,b", "1"]])
        'id,prediction\n"a,b",1\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
