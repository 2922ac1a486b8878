r"""Predictions as a table that spreadsheets read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


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
