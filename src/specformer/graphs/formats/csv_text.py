"""Tables as text: CSV with whatever parts its columns, however it is encoded."""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from specformer.errors import GraphError
from specformer.graphs.formats.csv_dialect import (
    encodings,
    opened,
    say_how,
    separator,
    writes_decimal_commas,
)
from specformer.graphs.formats.table import Table

Read = TypeVar("Read")

#: The first line of files for spreadsheets may name what parts columns.
_SEPARATOR_LINE = re.compile(r"sep=(.)")
COMMENTS = ("#", "%")


def read_csv(path: Path) -> Table:
    """Read a file, its encoding and its separator recognised; what was guessed is logged.

    Lines before the header that start with ``#`` are left out, unless the last of them is the
    header: it has as many cells as the row below.
    """

    def parse(text: io.TextIOWrapper, encoding: str) -> Table:
        start = _start(text)
        rows = csv.reader(
            chain(start.lines, text), delimiter=start.separator, skipinitialspace=True, strict=True
        )
        try:
            table = _parsed(path, rows, start.skipped)
        except csv.Error as error:
            problem = f"row {start.skipped + rows.line_num} cannot be read as CSV: {error}"
            raise GraphError(f"{path}: {problem}") from None
        cells = chain.from_iterable(table.columns.values())
        commas = writes_decimal_commas(start.separator, cells)
        say_how(path, encoding, start.separator, commas)
        return Table(path, table.columns, table.lines, commas)

    return decoded(path, parse)


def csv_header(path: Path) -> tuple[str, ...]:
    """The names in a file's header; none where it is empty."""

    def parse(text: io.TextIOWrapper, _: str) -> tuple[str, ...]:
        start = _start(text)
        first = next(csv.reader(start.lines, delimiter=start.separator), [])
        return tuple(name.strip() for name in first)

    return decoded(path, parse)


def decoded(path: Path, parse: Callable[[io.TextIOWrapper, str], Read]) -> Read:
    """What ``parse`` makes of a file's text, which is given to it with the encoding it has."""
    try:
        for encoding in encodings(path):
            try:
                with opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
                    return parse(text, encoding)
            except UnicodeDecodeError as error:
                wrong = error
    except FileNotFoundError:
        raise GraphError(f"{path}: there is no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise GraphError(f"{path}: cannot be read as CSV: {error}") from None
    raise GraphError(f"{path}: is not text: {wrong}") from None


@dataclass(frozen=True)
class _Start:
    """How many lines stand before the header, the first lines from it on, what parts columns."""

    skipped: int
    lines: list[str]
    separator: str


def _start(text: Iterable[str]) -> _Start:
    skipped, parted_by, before = 0, None, ""
    lines: list[str] = []
    for line in text:
        if not lines and not before and (told := _SEPARATOR_LINE.fullmatch(line.strip())):
            parted_by, skipped = told[1], skipped + 1
        elif not lines and line.startswith(COMMENTS[0]):
            skipped, before = skipped + 1, line
        else:
            lines.append(line)
            if sum(bool(each.strip()) for each in lines) == 2:
                break
    written = [line for line in lines if line.strip()]
    if before and written:
        header, of_rows = before.lstrip("# "), parted_by or separator(*written)
        if header.count(of_rows) == written[0].count(of_rows) > 0:
            return _Start(skipped - 1, [header, *lines], of_rows)
    return _Start(skipped, lines, parted_by or separator(*written or [""]))


def _parsed(path: Path, rows: Any, skipped: int) -> Table:
    header = _header(path, rows)
    table, lines = Table(path, {name: [] for name in header}, []), []
    # Of several columns without a name, as spreadsheets leave at the end, the first is kept.
    add_cell: list[Callable[[str], None]] = [
        table.columns[name].append if header.index(name) == place else _forget
        for place, name in enumerate(header)
    ]
    for row in rows:
        if len(row) > len(header) and not _is_written(row[len(header) :]):
            del row[len(header) :]  # what parts columns may end rows too
        if len(row) == len(header):
            for add, cell in zip(add_cell, row, strict=True):
                add(cell.strip())
            lines.append(skipped + rows.line_num)
        elif _is_written(row):
            cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            where = f"row {skipped + rows.line_num}"
            raise GraphError(f"{path}: {where} has {cells} where the header has {len(header)}")
    return Table(path, table.columns, lines)


def _forget(cell: str) -> None:
    """Take a cell of a column that is not kept."""


def _header(path: Path, rows: Any) -> tuple[str, ...]:
    """Return the names in the first row that is written."""
    first = next(filter(_is_written, rows), ())
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
