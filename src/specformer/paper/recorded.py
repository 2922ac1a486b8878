r"""Recorded results of the paper's tables: the ledger in a checkout's ``results/``."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import specformer
from specformer.errors import RunError
from specformer.files.documents import MALFORMED, read_json, unsealed
from specformer.paper.table_rows import paper_order, table_grid

SCHEMA = "specformer.result/1"
ENTRY_KEYS = {
    "schema": str,
    "name": str,
    "table": int,
    "command": str,
    "created": str,
    "seconds": float,
    "seed": int,
    "environment": dict,
    "recipes": dict,
    "rows": list,
}
_ROW_KEYS = ("model", "recipe", "dataset", "metric", "mean", "ci95", "runs", "paper", "parameters")


def results_folder(explicit: str | Path | None = None) -> Path:
    """The ledger: an explicit folder, ``./results``, or that of the checkout this runs from."""
    if explicit is not None:
        if not Path(explicit).is_dir():
            raise RunError(f"{explicit}: no such folder of results; name another with --results.")
        return Path(explicit)
    beside = Path(specformer.__file__).resolve().parents[2] / "results"
    for folder in (Path("results"), beside):
        if folder.is_dir():
            return folder
    raise RunError("no results folder here; run inside a checkout or name one with --results.")


def entries(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every recorded entry with its path, in order of names; altered entries are refused."""
    for path in sorted(folder.rglob("*.json")):
        try:
            yield path, unsealed(read_json(path))
        except ValueError as error:
            raise RunError(
                f"{path}: damaged ({error}); `python -m benchmarks.ledger add` records a run again."
            ) from error


def recorded_rows(folder: Path, table: int) -> list[dict[str, Any]]:
    """All recorded rows of one table, in the paper's order of models."""
    found = latest(folder / f"table-{table}")
    return sorted((row for entry in found for row in entry["rows"]), key=paper_order)


def latest(folder: Path) -> list[dict[str, Any]]:
    """Entries of a table without rows that a later entry has measured again.

    A model's metrics on a data set are measured together, so all its rows there are replaced.
    Raises for the first entry that is not valid.
    """
    found = []
    for path, entry in entries(folder):
        if wrong := problems(entry):
            raise RunError(f"{path}: {wrong[0]}.")
        found.append(entry)
    keys = ("model", "recipe", "dataset")
    return newest_rows(found, lambda _, row: tuple(row[key] for key in keys))


def newest_rows(
    entries: Sequence[Mapping[str, Any]],
    cell: Callable[[Mapping[str, Any], Mapping[str, Any]], Hashable],
) -> list[dict[str, Any]]:
    """Entries without rows whose ``cell(entry, row)`` a later entry has too."""
    newest: dict[Hashable, str] = {}
    for entry in entries:
        for row in entry["rows"]:
            key = cell(entry, row)
            newest[key] = max(entry["created"], newest.get(key, ""))
    current = (
        {
            **entry,
            "rows": [row for row in entry["rows"] if newest[cell(entry, row)] == entry["created"]],
        }
        for entry in entries
    )
    return [entry for entry in current if entry["rows"]]


def problems(entry: Any) -> list[str]:
    """What is wrong with an entry; empty if a table can show it."""
    if not isinstance(entry, dict):
        return [f"an entry should be an object, not {entry!r}"]
    found: list[str] = []
    for key, kind in ENTRY_KEYS.items():
        accepted = (int, float) if kind is float else kind
        if not isinstance(entry.get(key), accepted):
            found.append(f"{key} should be {kind.__name__}, not {entry.get(key)!r}")
    if entry.get("schema") not in (None, SCHEMA):
        found.append(f"schema {entry['schema']!r} is not {SCHEMA}")
    rows = entry.get("rows")
    if rows == []:
        found.append("rows is empty")
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        missing = [key for key in _ROW_KEYS if not isinstance(row, dict) or key not in row]
        if missing:
            found.append(f"row {number} lacks {', '.join(missing)}")
        elif not isinstance(row["mean"], int | float) or not math.isfinite(row["mean"]):
            found.append(f"row {number}: mean is {row['mean']!r}")
    if found:
        return found
    try:
        table_grid(entry["table"], entry["rows"])
    except MALFORMED as error:
        return [f"no table can be made of it ({type(error).__name__}: {error})"]
    return []
