"""A CSV file in memory, with errors that name its rows as a spreadsheet does."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs.csv_dialect import (
    encodings,
    opened,
    say_how,
    separator,
    writes_decimal_commas,
)

#: How their names end.
_ENDINGS = (".csv.gz", ".tsv.gz", ".csv", ".tsv")
#: Cells that say "not known", in any case.
_MISSING = {"", "nan", "na", "n/a", "null", "none", "-", "?"}
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}
#: What people call the two ends of an edge.
_ENDPOINTS = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))
#: The words for the parts of a split, in any case.
_PARTS = {
    **dict.fromkeys(("train", "training"), 0),
    **dict.fromkeys(("valid", "val", "validation", "dev"), 1),
    **dict.fromkeys(("test", "testing"), 2),
}


def is_csv(path: str | Path) -> bool:
    """Whether a file's name is that of a CSV file, perhaps with tabs, perhaps compressed.

    Example:
        >>> is_csv("mine.CSV"), is_csv("mine.csv.gz"), is_csv("mine.tsv"), is_csv("mine.npz")
        (True, True, True, False)
    """
    return str(path).lower().endswith(_ENDINGS)


def csv_name(path: Path) -> str:
    """The file's name without its ending.

    Example:
        >>> csv_name(Path("folder/mine.csv.gz"))
        'mine'
    """
    ending = next((end for end in _ENDINGS if path.name.lower().endswith(end)), path.suffix)
    return path.name[: len(path.name) - len(ending)]


def is_missing(cell: str) -> bool:
    """Whether a cell says that its value is not known.

    Example:
        >>> is_missing(""), is_missing("NA"), is_missing("0")
        (True, True, False)
    """
    return cell.casefold() in _MISSING


@dataclass(frozen=True)
class CsvTable:
    """A CSV file in memory: its columns of text by name, and the line each row ends on.

    Columns, not rows: a list for each of a million rows keeps the garbage collector busy.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]
    decimal_commas: bool = False

    @classmethod
    def read(cls, path: Path) -> CsvTable:
        """Read a file, its encoding and its separator recognised; what was guessed is logged."""
        try:
            for encoding in encodings(path):
                try:
                    return cls._decoded(path, encoding)
                except UnicodeDecodeError as error:
                    wrong = error
        except FileNotFoundError:
            raise GraphError(f"{path}: there is no such file") from None
        except (OSError, EOFError, zlib.error) as error:
            raise GraphError(f"{path}: cannot be read as CSV: {error}") from None
        raise GraphError(f"{path}: is not text: {wrong}") from None

    @classmethod
    def _decoded(cls, path: Path, encoding: str) -> CsvTable:
        with opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
            first = next((line for line in text if line.strip()), "")
            text.seek(0)
            parted_by = separator(first)
            reader = csv.reader(text, delimiter=parted_by, skipinitialspace=True, strict=True)
            try:
                table = cls._parse(path, reader)
            except csv.Error as error:
                problem = f"row {reader.line_num} cannot be read as CSV: {error}"
                raise GraphError(f"{path}: {problem}") from None
        commas = writes_decimal_commas(parted_by, chain.from_iterable(table.columns.values()))
        say_how(path, encoding, parted_by, commas)
        return cls(table.path, table.columns, table.lines, commas)

    @classmethod
    def _parse(cls, path: Path, reader: Any) -> CsvTable:
        header = _header(path, reader)
        table = cls(path, {name: [] for name in header}, [])
        # Of several columns without a name, as spreadsheets leave at the end, the first is kept.
        add_cell: list[Callable[[str], None]] = [
            table.columns[name].append if header.index(name) == place else _forget
            for place, name in enumerate(header)
        ]
        for row in reader:
            if len(row) == len(header):
                for add, cell in zip(add_cell, row, strict=True):
                    add(cell.strip())
                table.lines.append(reader.line_num)
            elif _is_written(row):
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                found = f"row {reader.line_num} has {cells} where the header has {len(header)}"
                raise GraphError(f"{path}: {found}")
        return table

    def named(self, name: str) -> str | None:
        """Return the column of that name, in any case, None if there is none."""
        if name in self.columns:
            return name
        alike = [column for column in self.columns if column.casefold() == name.casefold()]
        if len(alike) > 1:
            listed = ", ".join(map(repr, alike))
            raise GraphError(f"{self.path}: columns {listed} differ only in case")
        return alike[0] if alike else None

    def endpoints(self) -> tuple[str, str] | None:
        """Return the columns of an edge's two ends, None if it has none."""
        for pair in _ENDPOINTS:
            source, target = map(self.named, pair)
            if source is not None and target is not None:
                return source, target
        return None

    def column(self, name: str) -> list[str]:
        if name not in self.columns:
            known = ", ".join(map(repr, self.columns))
            raise GraphError(f"{self.path}: there is no column {name!r}, only {known}")
        return self.columns[name]

    def error(self, column: str, row: int, problem: str) -> GraphError:
        return GraphError(f"{self.path}: column {column!r}, row {self.lines[row]}: {problem}")

    def number(self, cell: str) -> float:
        """Return the number in a cell; a ValueError if there is none."""
        return float(cell.replace(",", ".") if self.decimal_commas else cell)

    def numbers(
        self,
        name: str,
        dtype: type[Any] = np.float64,
        *,
        missing: bool = False,
        hint: str = "",
    ) -> NDArray[Any]:
        """Return a column's numbers, NaN where one may be missing; ``hint`` is said of a word."""
        cells = self.column(name)
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            if missing and is_missing(cell):
                continue
            try:
                values[row] = self.number(cell)
            except ValueError:
                problem = f"{cell!r} is not a number{hint if cell else ''}"
                raise self.error(name, row, problem) from None
        return self.finite(name, values, dtype, missing=missing)

    def finite(
        self, name: str, values: NDArray[np.float64], dtype: type[Any], *, missing: bool = False
    ) -> NDArray[Any]:
        """Return a column's numbers in ``dtype``, finite there or, where some may be, missing."""
        with np.errstate(over="ignore"):  # what overflows is refused below
            numbers: NDArray[Any] = values.astype(dtype)
        bad = np.isinf(numbers) if missing else ~np.isfinite(numbers)
        if bad.any():
            row = int(bad.argmax())
            raise self.error(name, row, f"{self.columns[name][row]!r} is not a finite number")
        return numbers

    def weights(self, name: str) -> NDArray[np.float64]:
        weights = self.numbers(name)
        negative = weights < 0
        if negative.any():
            row = int(negative.argmax())
            raise self.error(name, row, f"the weight {weights[row]} is negative")
        return weights

    def booleans(self, name: str) -> NDArray[np.bool_]:
        cells = self.column(name)
        for row, cell in enumerate(cells):
            if cell.lower() not in _BOOLEANS:
                raise self.error(name, row, f"{cell!r} is neither 1 nor 0, nor true or false")
        return np.array([_BOOLEANS[cell.lower()] for cell in cells], dtype=np.bool_)

    def index(self, name: str) -> dict[str, int]:
        """Return the position of each id, refusing an id that is empty or appears twice."""
        index: dict[str, int] = {}
        for row, cell in enumerate(self.column(name)):
            if not cell:
                raise self.error(name, row, "the id is empty")
            if cell in index:
                raise self.error(
                    name, row, f"the id {cell!r} is also in row {self.lines[index[cell]]}"
                )
            index[cell] = row
        return index

    def positions(self, name: str, index: Mapping[str, int]) -> NDArray[np.int64]:
        cells = self.column(name)
        try:
            return np.fromiter(map(index.__getitem__, cells), np.int64, len(cells))
        except KeyError as error:
            cell = error.args[0]
            problem = f"there is no node {cell!r} in nodes.csv" if cell else "the id is empty"
            raise self.error(name, cells.index(cell), problem) from None

    def classes(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return the class of every row, -1 where it is not known, and the classes' names."""
        cells = self.column(name)
        names = in_order({cell for cell in cells if not is_missing(cell)})
        if not all(map(_is_number, names)):
            self.refuse_none(name)
        number = {each: i for i, each in enumerate(names)}
        return np.array([number.get(cell, -1) for cell in cells], dtype=np.int64), tuple(names)

    def refuse_none(self, name: str) -> None:
        """Refuse the word none among the words of a column, where it may be one of them."""
        for row, cell in enumerate(self.column(name)):
            if cell.casefold() == "none":
                either = "may be a class or a missing one; write another word, or leave it empty"
                raise self.error(name, row, f"{cell!r} {either}")

    def parts(self, name: str) -> NDArray[np.int64]:
        """Return the part of a split that every row is in: 0 train, 1 valid, 2 test, -1 none."""
        cells = self.column(name)
        for row, cell in enumerate(cells):
            if not is_missing(cell) and cell.casefold() not in _PARTS:
                known = "write train, valid or test, or give the column another name"
                raise self.error(name, row, f"{cell!r} is no part of a split; {known}")
        return np.array([_PARTS.get(cell.casefold(), -1) for cell in cells], dtype=np.int64)


def _forget(cell: str) -> None:
    """Take a cell of a column that is not kept."""


def _header(path: Path, reader: Any) -> tuple[str, ...]:
    """Return the names in the first row that is written."""
    first = next(filter(_is_written, reader), ())
    header = tuple(name.strip() for name in first)
    if not header:
        raise GraphError(f"{path}: the file is empty; its first row must name the columns")
    for column in filter(None, header):
        if header.count(column) > 1:
            raise GraphError(f"{path}: column {column!r} appears more than once")
    return header


def _is_written(row: list[str]) -> bool:
    """Tell a row from a blank line."""
    return any(cell.strip() for cell in row)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def in_order(names: Iterable[str]) -> list[str]:
    """Sort by number if every name is an integer, else by the alphabet."""
    names = list(names)
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)
