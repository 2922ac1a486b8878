"""A column of a table as a feature of nodes: numbers, truth values, dates or words."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specformer.graphs.formats.table import (
    CODE,
    TRUTHS,
    Table,
    in_order,
    is_number,
    plain_numbers,
    reads,
)

logger = logging.getLogger(__name__)

#: Truth values as other programs write them.
TRUE_FALSE = {"true": 1.0, "false": 0.0}
#: Units that may stand before or after all numbers of a column; others stand after them.
_SIGNS = "%$€£¥"
_LONGEST_UNIT = 8
_THOUSANDS = re.compile(r"\d{1,3}([,.'’\s]\d{3})+([.,]\d+)?")
_PLAIN = r"[-+−]?\d+([.,]\d+)?"
_ONE_COMMA = re.compile(r"[-+−]?\d+,\d+")
_COMMA = (
    "has a comma; write thousands without it, decimals with a point, and several values into a "
    "column each"
)
#: Cells that are not read as a number, and why.
_NO_NUMBERS = {
    re.compile(rf"([<>≤≥~≈]=?|==?) *{_PLAIN}"): "has a sign before the number; write it without, "
    "or leave the cell empty if it is only a bound",
    re.compile(rf"{_PLAIN} *(±|\+/-) *{_PLAIN}"): "is two numbers; write one, and the other into a "
    "column of its own",
    re.compile(rf"\({_PLAIN}\)"): "may be a negative number; write it with a minus sign",
    re.compile(r"[\[{].*[\]}]", re.DOTALL): "is several values; write one column for each",
    _ONE_COMMA: _COMMA,
}
#: As 20241231.
_COMPACT_DATE = re.compile(r"(19|20)\d{6}")
#: Numbers that often stand for a missing one.
_STAND_INS = (-99, -999, -9999, -99999, 999, 9999, 99999)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86400.0
_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d)?( [AaPp][Mm])?")
_DAYS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d.%m.%y",
    "%d/%m/%y", "%m/%d/%y", "%y/%m/%d", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d, %Y",
    "%B %d, %Y",
)  # fmt: skip
#: Date formats; None is ISO 8601. Those of numbers only may be ambiguous.
_DATES = (
    None, *_DAYS, *(f"{day} {clock}" for day in _DAYS for clock in _CLOCKS),
    "%Y-%m", "%b %Y", "%B %Y",
)  # fmt: skip


class FeatureColumn(NamedTuple):
    """A column as numbers, NaN where one is missing; the words they stand for, and their unit."""

    numbers: NDArray[np.float64]
    words: tuple[str, ...] | None = None
    unit: str = ""


def feature_column(table: Table, name: str) -> FeatureColumn:
    """Read a column as numbers or words.

    ``true`` and ``yes`` are 1, ``false`` and ``no`` 0, in any case. Dates become days since 1970,
    and times of day become hours. If all numbers have the same unit, they are read without it.
    Words are numbered in sorted order. Words among numbers, ambiguous dates and dates in several
    formats are refused.
    """
    cells, written = table.columns[name], table.written(name)
    are_numbers = plain_numbers(written) is not None or all(
        reads(table.number, cell) for cell in written
    )
    if not are_numbers or (written and all(map(_COMPACT_DATE.fullmatch, written))):
        different = tuple(dict.fromkeys(written))  # in the order of the rows, for errors
        if all(cell.casefold() in TRUTHS for cell in different):
            return FeatureColumn(_looked_up(cells, {c: TRUTHS[c.casefold()] for c in different}))
        if days := _days_of(table, name, different):
            logger.info("%s: column %r holds dates, read as days since 1970", table.path, name)
            return FeatureColumn(_looked_up(cells, days))
        if all(map(_TIME.fullmatch, different)) and (times := _ways(_CLOCKS, different)):
            logger.info("%s: column %r holds times of a day, read as hours", table.path, name)
            hours = {cell: day * 24 % 24 for cell, day in times[0].items()}
            return FeatureColumn(_looked_up(cells, hours))
        if unit := unit_of(table, name):
            values = _looked_up(cells, {c: table.number(bare(c, unit)) for c in different})
            return FeatureColumn(values, unit=unit)
        numbers = {cell for cell in different if reads(table.number, cell)}
        if 2 * sum(cell in numbers for cell in written) <= len(written):
            words = tuple(in_order(different))
            places = {word: float(n) for n, word in enumerate(words)}
            return FeatureColumn(_looked_up(cells, places), words)
    hint = ", as others of its column are; correct it, or leave the cell empty"
    values = table.numbers(name, np.float32, missing=True, hint=hint)
    if code := next(filter(CODE.fullmatch, written), None):
        told = "%s: column %r: %s is read as the number %d; --set %s takes codes"
        change = quote(f"columns.{name}=category")
        logger.warning(told, table.path, name, code, int(code), change)
    warn_of_stand_ins(table, name, values)
    return FeatureColumn(values)


def _looked_up(cells: list[str], values: Mapping[str, float]) -> NDArray[np.float64]:
    """The number that each cell stands for; NaN for cells without one, which are missing."""
    return np.array([values.get(cell, np.nan) for cell in cells])


def refuse_signs(table: Table, name: str) -> None:
    """Refuse ambiguous numbers, such as 1,200, >5 and (5), and several numbers in a cell.

    If few cells differ and none is a plain number, they may be words.
    """
    cells, written = table.columns[name], table.written(name)
    different = tuple(dict.fromkeys(written))
    strange: list[tuple[str, str]] = []
    for cell in different:
        number = cell.strip(_SIGNS + " ")
        if _THOUSANDS.fullmatch(number) and not reads(table.number, number):
            told = "has a thousands separator; write numbers without it"
            told = _COMMA if _ONE_COMMA.fullmatch(number) else told
            raise table.error(name, cells.index(cell), f"{cell!r} {told}")
        if not reads(table.number, cell):
            why = (told for form, told in _NO_NUMBERS.items() if form.fullmatch(cell))
            strange.append((cell, next(why, "")))
    are_numbers = len(strange) < len(different) or 2 * len(different) > len(written)
    if strange and are_numbers and all(told for _, told in strange):
        cell, told = strange[0]
        raise table.error(name, cells.index(cell), f"{cell!r} {told}")


def warn_of_stand_ins(table: Table, name: str, values: NDArray[np.float64]) -> None:
    """Warn of a number such as -999 that occurs several times, far from all others."""
    for number in _STAND_INS:
        others = values[(values != number) & ~np.isnan(values)]
        count = int((values == number).sum())
        if count < 2 or not len(others):
            continue
        if np.abs(others - number).min() > 2 * np.ptp(others):
            logger.warning(
                "%s: column %r: %d is in %d cells, far from all other numbers; leave them empty if "
                "it stands for a missing one", table.path, name, number, count,
            )  # fmt: skip


def is_date(cell: str) -> bool:
    """Whether a cell is a date rather than a number."""
    return not is_number(cell) and any(reads(partial(_days, way), cell) for way in _DATES)


def unit_of(table: Table, name: str) -> str:
    """The unit of all numbers, as cm after them, or a sign before or after; none if they differ.

    Refuses ambiguous numbers; a unit is logged.
    """
    written = {*table.written(name)}
    if plain_numbers([*written]) is not None:
        return ""
    refuse_signs(table, name)
    units = {cell.strip("0123456789+-−., ") for cell in written}
    unit = units.pop() if len(units) == 1 else ""
    signs = unit in _SIGNS or all(cell.endswith(unit) for cell in written)
    if not 0 < len(unit) <= _LONGEST_UNIT or not signs:
        return ""
    if not all(reads(table.number, bare(cell, unit)) for cell in written):
        return ""
    logger.info("%s: column %r is read without its unit, %s", table.path, name, unit)
    return unit


def without_units(table: Table, names: Sequence[str]) -> Table:
    """Remove the unit from those of the columns whose numbers all have the same unit."""
    columns = dict(table.columns)
    for name in names:
        if unit := unit_of(table, name):
            columns[name] = [bare(cell, unit) for cell in columns[name]]
    return replace(table, columns=columns)


def has_number(table: Table, name: str) -> bool:
    """Whether some cell of a column is a number, or true or false."""
    return any(
        cell.casefold() in TRUE_FALSE or reads(table.number, cell) for cell in table.written(name)
    )


def bare(cell: str, unit: str) -> str:
    """A cell without its unit, which may follow a minus sign."""
    sign = cell[:1] if cell[:1] in "-−" else ""
    return sign + cell.removeprefix(sign).removeprefix(unit).removesuffix(unit).strip()


def _days_of(table: Table, name: str, different: Sequence[str]) -> dict[str, float] | None:
    """The day of each cell, if all are dates in one format; refuses ambiguous dates."""
    found = _ways(_DATES, different)
    for cell in different:
        if len({days[cell] for days in found}) > 1:
            problem = f"{cell!r} may start with the day or with the month; write it as 2024-12-31"
            raise table.error(name, table.columns[name].index(cell), problem)
    if not found and all(map(is_date, different)):
        way = next(way for way in _DATES if reads(partial(_days, way), different[0]))
        other = next(cell for cell in different if not reads(partial(_days, way), cell))
        problem = f"dates are written as {different[0]!r} and as {other!r}; write all as 2024-12-31"
        raise table.error(name, table.columns[name].index(other), problem)
    return found[0] if found else None


def _ways(ways: Sequence[str | None], different: Sequence[str]) -> list[dict[str, float]]:
    """The day of each cell in every one of the formats that fits all cells."""
    found = []
    for way in ways:
        with suppress(ValueError):
            found.append({cell: _days(way, cell) for cell in different})
    return [days for days in found if days]


def _days(way: str | None, cell: str) -> float:
    """Days since 1970 at a date and time in this format; UTC if it has no time zone."""
    moment = datetime.fromisoformat(cell) if way is None else datetime.strptime(cell, way)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH).total_seconds() / _DAY
