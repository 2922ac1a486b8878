"""A table in memory, whatever file it comes from; errors name its rows as a spreadsheet does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs.columns import (
    ENDS,
    OTHER_SPLITS,
    SPLIT,
    plain_name,
    quoted,
)

#: Cells that say "not known", in any case.
_MISSING = {"", "nan", "na", "n/a", "#n/a", "<na>", "nat", "null", "none", "-", "?"}
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}
#: What may stand before or after all numbers of a column.
_SIGNS = "%$€£¥"
#: The words for the parts of a split, in any case.
_PARTS = {
    **dict.fromkeys(("train", "training"), 0),
    **dict.fromkeys(("valid", "val", "validation", "dev"), 1),
    **dict.fromkeys(("test", "testing"), 2),
}


def is_missing(cell: str) -> bool:
    """Whether a cell says that its value is not known."""
    return cell.casefold() in _MISSING


@dataclass(frozen=True)
class Table:
    """Columns of text by name.

    Columns, not rows: a list for each of a million rows keeps the garbage collector busy.

    Attributes:
        path: the file.
        columns: the cells by the column's name.
        lines: the number of each row in the file.
        decimal_commas: whether numbers are written as 0,5.
        row: what a row is called in errors.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: Sequence[int]
    decimal_commas: bool = False
    row: str = "row"

    def named(self, *names: str) -> str | None:
        """Return the column of one of these names, as :func:`plain_name` has them; None without.

        The first name that there is counts.
        """
        for name in names:
            alike = [column for column in self.columns if plain_name(column) == name]
            if len(alike) > 1 and name not in alike:
                raise GraphError(f"{self.path}: columns {quoted(alike)} differ only in case")
            if alike:
                return name if name in alike else alike[0]
        return None

    def said(self, name: str) -> str:
        """Return the column that a person named, in any case; refuse one that is not there."""
        if name in self.columns:
            return name
        alike = [column for column in self.columns if column.casefold() == name.casefold()]
        if len(alike) != 1:
            raise GraphError(
                f"{self.path}: there is no column {name!r}, only {quoted(self.columns)}"
            )
        return alike[0]

    def chosen(self, said: str | None, *names: str) -> str | None:
        """Return the column that a person named, else that of one of these names."""
        return self.named(*names) if said is None else self.said(said)

    def endpoints(self) -> tuple[str, str] | None:
        """Return the columns of an edge's two ends, None if it has none; refuse two such pairs."""
        for pairs in ENDS:
            found = [(self.named(one), self.named(other)) for one, other in pairs]
            whole = [(one, other) for one, other in found if one is not None and other is not None]
            if len(whole) > 1:
                either = " or ".join(f"{one!r} and {other!r}" for one, other in whole)
                raise GraphError(
                    f"{self.path}: the ends of an edge may be {either}; say which with "
                    "--source and --target"
                )
            if whole:
                return whole[0]
        return None

    def split(self, said: str | None = None) -> str | None:
        """Return the column of a split: as said, one called so, or one that holds parts' names."""
        found = self.chosen(said, SPLIT)
        other = self.named(*OTHER_SPLITS) if found is None else None
        if other is None:
            return found
        cells = [cell.casefold() for cell in self.columns[other]]
        known = all(is_missing(cell) or cell in _PARTS for cell in cells)
        return other if known and any(cell in _PARTS for cell in cells) else None

    def error(self, column: str, row: int, problem: str) -> GraphError:
        where = f"column {column!r}, {self.row} {self.lines[row]}"
        return GraphError(f"{self.path}: {where}: {problem}")

    def number(self, cell: str) -> float:
        """Return the number in a cell; a ValueError if there is none."""
        if "_" in cell:  # Python would read 1_2 as 12
            raise ValueError(cell)
        return float(cell.replace(",", ".") if self.decimal_commas else cell)

    def unsigned(self, cell: str) -> float:
        """Return the number in a cell with a sign such as % beside it."""
        return self.number(cell.strip(_SIGNS))

    def numbers(
        self,
        name: str,
        dtype: type[Any] = np.float64,
        *,
        missing: bool = False,
        hint: str = "",
        words: Mapping[str, float] | None = None,
    ) -> NDArray[Any]:
        """Return a column's numbers, finite in ``dtype``; NaN where one may be missing.

        ``hint`` is said of a word that is not a number; ``words`` are numbers too, in any case.
        """
        cells, known = self.columns[name], words or {}
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            if missing and is_missing(cell):
                continue
            try:
                found = known.get(cell.casefold())
                values[row] = self.number(cell) if found is None else found
            except ValueError:
                problem = f"{cell!r} is not a number{hint if cell else ''}"
                raise self.error(name, row, problem) from None
        with np.errstate(over="ignore"):  # what overflows is refused below
            numbers: NDArray[Any] = values.astype(dtype)
        bad = np.isinf(numbers) if missing else ~np.isfinite(numbers)
        if bad.any():
            row = int(bad.argmax())
            raise self.error(name, row, f"{cells[row]!r} is not a finite number")
        return numbers

    def weights(self, name: str) -> NDArray[np.float64]:
        weights = self.numbers(name)
        negative = weights < 0
        if negative.any():
            row = int(negative.argmax())
            raise self.error(name, row, f"the weight {weights[row]} is negative")
        return weights

    def booleans(self, name: str) -> NDArray[np.bool_]:
        cells = self.columns[name]
        for row, cell in enumerate(cells):
            if cell.lower() not in _BOOLEANS:
                raise self.error(name, row, f"{cell!r} is neither 1 nor 0, nor true or false")
        return np.array([_BOOLEANS[cell.lower()] for cell in cells], dtype=np.bool_)

    def refuse_no_header(self) -> None:
        """Refuse a first row of values; columns may be called 0, 1, 2, … after the first."""
        header = list(self.columns)
        counted = {str(place) for place in range(len(header) + 1)}
        numbers = filter(is_number, header)
        strange = next((name for name in numbers if name not in counted), None)
        if strange is None and header and is_number(header[0]):
            strange = header[0]
        if strange is not None:
            problem = f"the first row must name the columns, and {strange!r} looks like a value"
            raise GraphError(f"{self.path}: {problem}")

    def index(self, name: str) -> dict[str, int]:
        """Return the position of each id, refusing an id that is empty or appears twice."""
        index: dict[str, int] = {}
        for row, cell in enumerate(self.columns[name]):
            if not cell:
                raise self.error(name, row, "the id is empty")
            if cell in index:
                before = f"{self.row} {self.lines[index[cell]]}"
                raise self.error(name, row, f"the id {cell!r} is also in {before}")
            index[cell] = row
        return index

    def positions(self, name: str, index: Mapping[str, int], among: str) -> NDArray[np.int64]:
        """Return the position of each node that a column names; ``among`` is where nodes are."""
        cells = self.columns[name]
        try:
            return np.fromiter(map(index.__getitem__, cells), np.int64, len(cells))
        except KeyError as error:
            cell = error.args[0]
            problem = f"there is no node {cell!r} in {among}" if cell else "the id is empty"
            alike = next((node for node in index if _are_alike(node, cell)), None)
            hint = "" if alike is None else f"; write it as {alike!r}, as there"
            raise self.error(name, cells.index(cell), problem + hint) from None

    def classes(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return the class of every row, -1 where it is not known, and the classes' names.

        The word none is refused among words, where it may be one of them, and so are words that
        differ only in case.
        """
        cells = self.columns[name]
        names = in_order({cell for cell in cells if not is_missing(cell)})
        none = next((row for row, cell in enumerate(cells) if cell.casefold() == "none"), None)
        if none is not None and not all(map(is_number, names)):
            either = "may be a class or a missing one; write another word, or leave it empty"
            raise self.error(name, none, f"{cells[none]!r} {either}")
        first: dict[str, str] = {}
        for word in names:
            if (other := first.setdefault(word.casefold(), word)) != word:
                alike = f"the classes {other!r} and {word!r} differ only in case; write one of them"
                raise GraphError(f"{self.path}: column {name!r}: {alike}")
        number = {each: i for i, each in enumerate(names)}
        return np.array([number.get(cell, -1) for cell in cells], dtype=np.int64), tuple(names)

    def parts(self, name: str) -> NDArray[np.int64]:
        """Return the part of a split that every row is in: 0 train, 1 valid, 2 test, -1 none."""
        cells = self.columns[name]
        for row, cell in enumerate(cells):
            if not is_missing(cell) and cell.casefold() not in _PARTS:
                known = "write train, valid or test, or give the column another name"
                raise self.error(name, row, f"{cell!r} is no part of a split; {known}")
        return np.array([_PARTS.get(cell.casefold(), -1) for cell in cells], dtype=np.int64)

    def say_split(self, name: str, sizes: Sequence[int]) -> None:
        """Log that a column is read as a split."""
        told = "%s: column %r is a split: %d train, %d valid, %d test"
        logger.info(told, self.path, name, *sizes)


def _are_alike(one: str, other: str) -> bool:
    """Whether two ids are one in two spellings, as 7, 007 and 7.0 are, or Ann and ann."""
    if is_number(one) and is_number(other):
        return float(one) == float(other)
    plain, other_plain = (normalize("NFKC", each).casefold() for each in (one, other))
    return plain == other_plain


def is_number(cell: str) -> bool:
    """Whether a cell is a number with a decimal point, or without."""
    return reads(float, cell)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort by number if every name is an integer, else by the alphabet."""
    names = list(names)
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


logger = logging.getLogger(__name__)

_TRUTHS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
_THOUSANDS = re.compile(r"\d{1,3}([,.' ]\d{3})+([.,]\d+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86400.0
#: Ways to write a date beside ISO 8601, which is None.
_DATES = (None, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")


def feature_column(table: Table, name: str) -> tuple[NDArray[np.float32], tuple[str, ...] | None]:
    """Return a column as numbers, NaN where one is missing, and the words they stand for, if any.

    ``true`` and ``yes`` are 1, ``false`` and ``no`` 0, in any case. Dates become days since 1970.
    Words are numbered in their order. A word among numbers is refused, and so are dates that may
    have the day first, or the month.
    """
    cells = table.columns[name]
    written = [cell for cell in cells if not is_missing(cell)]
    numbers = sum(reads(table.number, cell) for cell in written)
    if numbers < len(written):
        if all(cell.casefold() in _TRUTHS for cell in written):
            return _each(cells, lambda cell: _TRUTHS[cell.casefold()]), None
        if days := _days_of(table, name, written):
            logger.info("%s: column %r holds dates, read as days since 1970", table.path, name)
            return _each(cells, days), None
        for cell in written:
            if _THOUSANDS.fullmatch(cell.strip(_SIGNS)):
                problem = f"{cell!r} has a sign between thousands; write numbers without it"
                raise table.error(name, cells.index(cell), problem)
        if (sign := _sign_of(written)) and all(reads(table.unsigned, cell) for cell in written):
            told = "%s: column %r is read without the sign %s of its numbers"
            logger.info(told, table.path, name, sign)
            return _each(cells, table.unsigned), None
        if 2 * numbers <= len(written):
            words = tuple(in_order(set(written)))
            place = {word: float(number) for number, word in enumerate(words)}
            return _each(cells, place.__getitem__), words
    hint = ", as others of its column are; correct it, or leave the cell empty"
    return table.numbers(name, np.float32, missing=True, hint=hint), None


def _each(cells: list[str], read: Callable[[str], float]) -> NDArray[np.float32]:
    found = [np.nan if is_missing(cell) else read(cell) for cell in cells]
    return np.array(found, dtype=np.float32)


def reads(read: Callable[[str], float], cell: str) -> bool:
    """Whether a cell can be read so."""
    try:
        read(cell)
    except ValueError:
        return False
    return True


def is_date(cell: str) -> bool:
    """Whether a cell is a date rather than a number."""
    return not is_number(cell) and any(reads(partial(_days, way), cell) for way in _DATES)


def _sign_of(written: list[str]) -> str:
    """The sign before or after every number, as % or that of a currency; none if they differ."""
    signs = {cell.strip("0123456789+-., ") for cell in written}
    return signs.pop() if len(signs) == 1 and signs <= {*_SIGNS} else ""


def _days_of(table: Table, name: str, written: list[str]) -> Callable[[str], float] | None:
    """What reads all cells as dates, if they are; refuses those that two ways read otherwise."""
    ways = [partial(_days, way) for way in _DATES]
    found = [days for days in ways if all(reads(days, cell) for cell in written)]
    for cell in written:
        if len({days(cell) for days in found}) > 1:
            problem = f"{cell!r} may have the day first, or the month; write it as 2024-12-31"
            raise table.error(name, table.columns[name].index(cell), problem)
    return found[0] if found else None


def _days(way: str | None, cell: str) -> float:
    """Days since 1970 at a date and time written so; without a zone it is UTC."""
    moment = datetime.fromisoformat(cell) if way is None else datetime.strptime(cell, way)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH).total_seconds() / _DAY
