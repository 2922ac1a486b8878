"""Tables on disk: CSV in its many forms, and Parquet."""

from __future__ import annotations

import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

from specformer.errors import ConfigError, GraphError
from specformer.graphs.formats.csv_text import csv_header, read_csv
from specformer.graphs.formats.table import Table

_PARQUET = (".parquet", ".pq")
#: How the names of tables end.
TABLES = (".csv.gz", ".tsv.gz", ".csv", ".tsv", *_PARQUET)


def is_table(path: str | Path) -> bool:
    """Whether a file's name is that of a table: CSV, perhaps with tabs or compressed, or Parquet.

    Example:
        >>> is_table("mine.CSV"), is_table("mine.csv.gz"), is_table("a.parquet"), is_table("a.npz")
        (True, True, True, False)
    """
    return str(path).lower().endswith(TABLES)


def bare_name(path: Path) -> str:
    """The file's name without its ending.

    Example:
        >>> bare_name(Path("folder/mine.csv.gz")), bare_name(Path("mine.graphml"))
        ('mine', 'mine')
    """
    stem = Path(path.stem) if path.suffix.lower() == ".gz" else path
    return stem.stem if stem.suffix else stem.name


def read_table(path: Path) -> Table:
    """Read a table of any kind as text."""
    return _read_parquet(path) if path.suffix.lower() in _PARQUET else read_csv(path)


def table_header(path: Path) -> tuple[str, ...]:
    """The names of a table's columns."""
    if path.suffix.lower() in _PARQUET:
        return tuple(_parquet(path).schema_arrow.names)
    return csv_header(path)


def cell_text(value: Any) -> str:
    """A value as a CSV file would hold it; what is missing is empty.

    Example:
        >>> cell_text(None), cell_text(float("nan")), cell_text(0.5), cell_text(True)
        ('', '', '0.5', 'true')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(value).strip()


def _parquet(path: Path) -> Any:
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigError(
            f"{path}: reading Parquet needs PyArrow; install it with "
            "pip install 'specformer[parquet]'."
        ) from None
    try:
        return ParquetFile(path)
    except FileNotFoundError:
        raise GraphError(f"{path}: there is no such file") from None
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise GraphError(f"{path}: cannot be read as Parquet: {reason}") from None


def _read_parquet(path: Path) -> Table:
    found = _parquet(path).read()
    columns: dict[str, list[str]] = {}
    for name, column in zip(found.column_names, found.columns, strict=True):
        values = column.to_pylist()
        whole = next((each for each in values if isinstance(each, list | dict)), None)
        if whole is not None:
            raise GraphError(
                f"{path}: column {name!r} holds several values in a cell; write one column for each"
            )
        columns[name] = [cell_text(value) for value in values]
    return Table(path, columns, range(1, found.num_rows + 1))
