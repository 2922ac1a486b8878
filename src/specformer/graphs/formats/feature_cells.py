"""A feature column of a table: numbers, truth values, dates or words, some perhaps missing."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from specformer.graphs.formats.table import Table, in_order, is_missing

logger = logging.getLogger(__name__)

_TRUTHS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
_THOUSANDS = re.compile(r"\d{1,3}([,.' ]\d{3})+([.,]\d+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86400.0


def feature_column(table: Table, name: str) -> tuple[NDArray[np.float32], tuple[str, ...] | None]:
    """Return a column as numbers, NaN where one is missing, and the words they stand for, if any.

    ``true`` and ``yes`` are 1, ``false`` and ``no`` 0, in any case. Dates as ISO 8601 writes them
    become days since 1970. Words are numbered in their order. A word among numbers is refused.
    """
    cells = table.column(name)
    written = [cell for cell in cells if not is_missing(cell)]
    numbers = sum(_reads(table.number, cell) for cell in written)
    if numbers < len(written):
        if all(cell.casefold() in _TRUTHS for cell in written):
            return _each(cells, lambda cell: _TRUTHS[cell.casefold()]), None
        if all(_reads(_days, cell) for cell in written):
            logger.info("%s: column %r holds dates, read as days since 1970", table.path, name)
            return _each(cells, _days), None
        if thousands := next(filter(_THOUSANDS.fullmatch, written), None):
            problem = f"{thousands!r} has a sign between thousands; write numbers without it"
            raise table.error(name, cells.index(thousands), problem)
        if 2 * numbers <= len(written):
            words = tuple(in_order(set(written)))
            place = {word: float(number) for number, word in enumerate(words)}
            return _each(cells, place.__getitem__), words
    hint = ", as others of its column are; correct it, or leave the cell empty"
    return table.numbers(name, np.float32, missing=True, hint=hint), None


def _each(cells: list[str], read: Callable[[str], float]) -> NDArray[np.float32]:
    found = [np.nan if is_missing(cell) else read(cell) for cell in cells]
    return np.array(found, dtype=np.float32)


def _reads(read: Callable[[str], float], cell: str) -> bool:
    try:
        read(cell)
    except ValueError:
        return False
    return True


def _days(cell: str) -> float:
    """Days since 1970 at a date and time in ISO 8601; without a zone it is UTC.

    Example:
        >>> _days("1970-01-02T12:00")
        1.5
    """
    moment = datetime.fromisoformat(cell)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH).total_seconds() / _DAY
