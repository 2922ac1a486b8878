"""Tables on disk: CSV with any separator and encoding, and Parquet."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import logging
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from specformer.errors import ConfigError, GraphError
from specformer.files.atomic import is_special
from specformer.files.host_memory import free_bytes, gib, raised
from specformer.graphs.formats.table import MATRIX, Table, is_number

logger = logging.getLogger(__name__)
Read = TypeVar("Read")

_PARQUET = (".parquet", ".pq")
#: Endings of tables.
TABLES = (".csv.gz", ".tsv.gz", ".csv", ".tsv", *_PARQUET)
SDF = (".sdf", ".sdf.gz")
#: Endings of file formats of chemistry.
_MOLECULES = (".smi", ".smi.gz", ".smiles", *SDF)
#: Separators of columns and what to call them; those that are rare in names come first.
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
#: The first line of a file for spreadsheets may name the separator.
_SEPARATOR_LINE = re.compile(r"sep=(.)")
COMMENTS = ("#", "%")
#: Tried in turn; the last one reads anything. Programs on Windows write the second.
_ENCODINGS = ("utf-8-sig", "cp1252", "latin-1")
#: The first bytes of a spreadsheet, whatever its ending is.
_ZIP = b"PK\x03\x04"
_QUOTED = re.compile(r'"[^"]*"')
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?( ?[^\W\d]{1,3}| ?[%€$£])?", re.IGNORECASE)
_SURELY_DECIMAL = re.compile(r"-?0,\d{2,}|-\d+,(\d\d?|\d{4,})|\d+,\d{4,}")
_SEVERAL = re.compile(r"\d+(, ?\d+){2,}")
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+")
#: One thousand and more as Europeans write it; for others a number with a fraction.
_WITH_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")


def is_table(path: str | Path) -> bool:
    """Whether a file is a table by its name: CSV, also with tabs or compressed, or Parquet."""
    return str(path).lower().endswith(TABLES)


def is_of_molecules(path: str | Path) -> bool:
    """Whether a file may hold molecules, by its name: a table, ``.smi`` or ``.sdf``."""
    return is_table(path) or str(path).lower().endswith(_MOLECULES)


def bare_name(path: Path) -> str:
    """The file's name without its ending."""
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).stem


def table_header(path: Path) -> tuple[str, ...]:
    """The names of a table's columns; empty if the file is."""
    if path.suffix.lower() in _PARQUET:
        return tuple(parquet_file(path).schema_arrow.names)

    def parse(text: io.TextIOWrapper, _: str) -> tuple[str, ...]:
        lines, parted_by = _start(text)[1:]
        first = next(csv.reader(lines, delimiter=parted_by), [])
        return tuple(name.strip() for name in first)

    return decoded(path, parse)


def read_table(path: Path) -> Table:
    """Read a table of any kind as text; guesses at encoding and separator of CSV are logged.

    Lines before the header that start with ``#`` are skipped, unless the last of them is the
    header: then it has as many cells as the row below.
    """
    if path.suffix.lower() in _PARQUET:
        return _read_parquet(path)

    def parse(text: io.TextIOWrapper, encoding: str) -> Table:
        skipped, first, parted_by = _start(text)
        rows = csv.reader(
            chain(first, text), delimiter=parted_by, skipinitialspace=True, strict=True
        )
        try:
            columns, lines = _parsed(path, rows, skipped)
        except csv.Error as error:
            problem = f"row {skipped + rows.line_num} cannot be read as CSV: {error}"
            raise GraphError(f"{path}: {problem}") from None
        commas = _writes_decimal_commas(parted_by, columns)
        say_how(path, encoding, parted_by, commas)
        if parted_by == ";" or commas:
            _warn_of_thousands(path, columns, "," if commas else ".")
        return Table(path, columns, lines, commas)

    return decoded(path, parse)


def decoded(path: Path, parse: Callable[[io.TextIOWrapper, str], Read]) -> Read:
    """Return what ``parse`` returns for a file's text and its encoding."""
    try:
        with opened(path) as file:
            start = file.read(4096)
        is_wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if not is_wide and (b"\0" in start or start.startswith(_ZIP)):
            raise GraphError(f"{path}: is not text; export it as CSV")
        for encoding in ("utf-16",) if is_wide else _ENCODINGS:
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


def opened(path: Path) -> Any:
    """Open a file to read its bytes, decompressed if its name ends in ``.gz``."""
    if is_special(path):  # reading it may never end
        raise GraphError(f"{path}: is a device or a pipe; name a file")
    return _Bounded(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


class _Bounded(gzip.GzipFile):
    """A compressed file that may unpack to at most a quarter of the free memory.

    A cell of a table takes several times as much memory as its text.
    """

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._most = raised(free_bytes() // 4)

    def read(self, size: int | None = -1) -> bytes:
        whole = size is None or size < 0
        return self._checked(super().read(self._most + 1 if whole else size))

    def read1(self, size: int = -1) -> bytes:
        return self._checked(super().read1(size))

    def _checked(self, found: bytes) -> bytes:
        if self.tell() > self._most:
            raise GraphError(f"{self.name}: unpacks to more than {gib(self._most)}; free memory")
        return found


def separator(header: str, second: str = "") -> str:
    r"""The separator of columns: the most frequent one of the header that is as frequent below it.

    Without such a separator it is the most frequent one of the header. If the header has none, it
    is a space if both rows have the same number of words, two or more, else a comma.

    Example:
        >>> separator("id;age;label"), separator("id\tage"), separator('"a;b",c'), separator("id")
        (';', '\t', ',', ',')
        >>> separator("size, cm;age", "1;2"), separator("source target", "1   2")
        (';', ' ')
    """
    bare, below = _QUOTED.sub("", header), _QUOTED.sub("", second)
    there = [sign for sign in _SEPARATORS if sign in bare]
    words = len(bare.split())
    if not there:
        return " " if words > 1 and len(below.split()) == words else ","
    alike = [sign for sign in there if bare.count(sign) == below.count(sign)]
    return max(alike or there, key=bare.count)  # the first of equals


def _writes_decimal_commas(parted_by: str, columns: Mapping[str, list[str]]) -> bool:
    """Whether numbers are written as 0,5: some have a comma and none has a point.

    Beside commas that separate columns, 1,234 may be thousands and 1,2 two values in quotes. There
    a number must be neither, such as 0,52 or -1,5, and no cell may have several commas.
    """
    cells = [cell for column in columns.values() for cell in column if "," in cell]
    written = _SURELY_DECIMAL if parted_by == "," else _WITH_COMMA
    if not any(map(written.fullmatch, cells)):
        return False
    if parted_by == "," and any(map(_SEVERAL.fullmatch, cells)):
        return False
    return not any(map(_WITH_POINT.fullmatch, chain.from_iterable(columns.values())))


def _warn_of_thousands(path: Path, columns: Mapping[str, list[str]], mark: str) -> None:
    """Warn of numbers that all look like 1.234, or 1,234, which may be thousands."""
    for name, cells in columns.items():
        marked = [cell.strip("%$€£¥ ") for cell in cells if mark in cell]
        if len(marked) > 1 and all(
            _WITH_THOUSANDS.fullmatch(each.replace(",", ".")) for each in marked
        ):
            told = "%s: column %r: %s is read as a number with a fraction; if thousands are meant, "
            what = "point" if mark == "." else "comma"
            logger.warning(told + "write it without the %s", path, name, marked[0], what)


def say_how(path: Path, encoding: str, parted_by: str = ",", decimal_commas: bool = False) -> None:
    """Log what was guessed about a file."""
    if encoding in _ENCODINGS[1:]:
        logger.warning("%s: is not UTF-8 text; it is read as Latin-1 (Windows-1252)", path)
    if parted_by != ",":
        logger.info("%s: columns are separated by %s", path, _SEPARATORS.get(parted_by, "spaces"))
    if decimal_commas:
        logger.info("%s: commas in numbers are read as decimal points", path)


def _start(text: Iterable[str]) -> tuple[int, list[str], str]:
    """The number of lines before the header, the first lines from it on, and the separator."""
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
            return skipped - 1, [header, *lines], of_rows
    return skipped, lines, parted_by or separator(*written or [""])


def _parsed(path: Path, rows: Any, skipped: int) -> tuple[dict[str, list[str]], list[int]]:
    """Return the columns by name, and the line number of each row in the file."""
    header = [name.strip() for name in next(filter(_is_written, rows), ())]
    if not header:
        raise GraphError(f"{path}: the file is empty; its first row must name the columns")
    for column in filter(None, header):
        if header.count(column) > 1:
            hint = (
                f"; the first row must name the columns; if this is an adjacency matrix, {MATRIX}"
            )
            told = f"column {column!r} appears more than once{hint if is_number(column) else ''}"
            raise GraphError(f"{path}: {told}")
    line = skipped + rows.line_num
    columns: dict[str, list[str]] = {name: [] for name in header}
    # Spreadsheets leave columns without a name at the end; the first of them is kept.
    kept = [(columns[name].append, header.index(name)) for name in columns]
    lines: list[int] = []
    for row in rows:
        if len(row) > len(header) and not _is_written(row[len(header) :]):
            del row[len(header) :]  # a separator may end rows too
        if len(row) == len(header):
            for add, place in kept:
                add(row[place].strip())  # faster than stripping whole rows
            lines.append(skipped + rows.line_num)
            if len(lines) == 1:
                _refuse_title(path, header, row, line)
        elif _is_written(row):
            found = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            where = f"row {skipped + rows.line_num}"
            raise GraphError(f"{path}: {where} has {found} where the header has {len(header)}")
    return columns, lines


def _refuse_title(path: Path, header: list[str], row: list[str], line: int) -> None:
    """Refuse a header that leaves most columns without a name; pandas names no index."""
    named = sum(map(bool, header))
    pairs = zip(header[1:], row[1:], strict=True)
    if sum(bool(cell.strip()) and not name for name, cell in pairs) >= named:
        told = f"row {line} names {named} of {len(header)} columns"
        raise GraphError(f"{path}: {told}; the first row must name them")


def _is_written(row: list[str]) -> bool:
    """Whether a row is not a blank line."""
    return any(cell.strip() for cell in row)


def cell_text(value: Any) -> str:
    """A value as a CSV file would hold it; a missing one is empty.

    Example:
        >>> cell_text(None), cell_text(float("nan")), cell_text(0.5), cell_text(True)
        ('', '', '0.5', 'true')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value).strip()


def parquet_file(path: Path) -> Any:
    """Open a Parquet file with PyArrow."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigError(
            f"{path}: reading Parquet needs PyArrow; install it with "
            "pip install 'specformer[parquet]'."
        ) from None
    try:
        return ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise GraphError(f"{path}: there is no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, "Parquet", error) from None


def parquet_rows(path: Path, groups: Sequence[int] | None = None) -> Any:
    """Read a Parquet file, or some of its row groups, as a PyArrow table.

    Refuses what does not fit into memory: a small file may hold a billion equal numbers.
    """
    from pyarrow import ArrowException

    file = parquet_file(path)
    sizes = [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]
    groups = range(file.num_row_groups) if groups is None else groups
    cells = sum(sizes[each] for each in groups) * file.metadata.num_columns
    if 8 * cells > raised(free := free_bytes()):
        raise GraphError(
            f"{path}: {cells:,} cells unpack to more than the {gib(free)} that are free"
        )
    try:
        return file.read_row_groups(list(groups))
    except (OSError, ArrowException) as error:
        raise unreadable(path, "Parquet", error) from None


def unreadable(path: Path, form: str, error: Exception) -> GraphError:
    """An error that says in one sentence why a file is not of this form."""
    reason = str(error).partition("\n")[0].rstrip(".")
    return GraphError(f"{path}: cannot be read as {form}: {reason}")


def _read_parquet(path: Path) -> Table:
    found = parquet_rows(path)
    columns: dict[str, list[str]] = {}
    for name, column in zip(found.column_names, found.columns, strict=True):
        values = column.to_pylist()
        if any(isinstance(each, list | dict) for each in values):
            raise GraphError(
                f"{path}: column {name!r} holds several values in a cell; write one column for each"
            )
        columns[name] = [cell_text(value) for value in values]
    return Table(path, columns, range(1, found.num_rows + 1))
