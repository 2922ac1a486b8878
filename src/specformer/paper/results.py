r"""The results ledger: recorded measurements, and the tables in README and docs made from them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import specformer
from specformer.errors import ConfigError, RunError
from specformer.files import write_json, write_text
from specformer.files.documents import MALFORMED, read_json
from specformer.files.sealed import sealed, unsealed
from specformer.paper.recorded import markdown_table, newest_rows, summary_table
from specformer.paper.table_rows import paper_order
from specformer.tasks.recipes.settings import START
from specformer.training.runs.folder import RunFolder

SCHEMA = "specformer.result/1"
_ENTRY_KEYS = {
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
_BLOCK = re.compile(
    r"(<!-- results:(?P<name>summary|table-[\w./-]+) -->\n)(?P<body>.*?)(<!-- /results -->)",
    re.DOTALL,
)
_SHOWN = ("README.md", "docs/**/*.md")


def results_folder(explicit: str | Path | None = None) -> Path:
    """The ledger: an explicit folder, ``./results``, or that of the checkout this runs from."""
    if explicit is not None:
        if not Path(explicit).is_dir():
            raise RunError(f"{explicit}: no such folder of results.")
        return Path(explicit)
    beside = Path(specformer.__file__).resolve().parents[2] / "results"
    for folder in (Path("results"), beside):
        if folder.is_dir():
            return folder
    raise RunError("no results folder here; run inside a checkout or name one with --results.")


def entries(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every recorded entry with its path, in the order of their names; altered ones are refused."""
    for path in sorted(folder.rglob("*.json")):
        try:
            yield path, unsealed(read_json(path))
        except ValueError as error:
            raise RunError(
                f"{path}: damaged ({error}); `specformer results add` records a run again."
            ) from error


def recorded_rows(folder: Path, table: int) -> list[dict[str, Any]]:
    """All recorded rows of one table, in the paper's order of models."""
    found = latest(_valid_entries(folder / f"table-{table}"))
    return sorted((row for entry in found for row in entry["rows"]), key=paper_order)


def _valid_entries(folder: Path) -> list[dict[str, Any]]:
    """Entries that tables can be made of; the first that is none is refused."""
    found = []
    for path, entry in entries(folder):
        if problems := _problems(entry):
            raise RunError(f"{path}: {problems[0]}.")
        found.append(entry)
    return found


def latest(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries of a table without the rows that a later entry has measured again.

    A model's metrics on a data set are measured together, so all of its rows there are replaced.
    """
    keys = ("model", "recipe", "dataset")
    return newest_rows(found, lambda _, row: tuple(row[key] for key in keys))


def add(
    run: RunFolder,
    folder: Path,
    name: str | None = None,
    recipes: Sequence[str] | None = None,
    *,
    replace: bool = False,
) -> Path:
    """Record a finished run of a table, all of it or only the rows of some recipes.

    An entry of the same name is refused unless it is to be replaced.
    """
    result = run.result()
    if "table" not in result:
        raise RunError(f"{run.path}: only runs of `specformer table` go into the ledger.")
    name = name or run.path.resolve().name
    if Path(name).name != name or name == "..":
        raise ConfigError(f"--name {name}: the name must not contain folders.")
    entry: dict[str, Any] = {"schema": SCHEMA, "name": name}
    entry |= {key: result[key] for key in _ENTRY_KEYS if key not in entry and key in result}
    entry |= {key: result[key] for key in ("spectrum_seconds", "title") if key in result}
    if recipes is not None:
        known = entry.get("recipes", {})
        unknown = [recipe for recipe in recipes if recipe not in known]
        if unknown:
            raise RunError(
                f"{run.path}: holds no recipe {', '.join(unknown)}; it has {', '.join(known)}."
            )
        entry["rows"] = [row for row in entry["rows"] if row["recipe"] in recipes]
        entry["recipes"] = {key: known[key] for key in (*recipes, *_first(known, recipes))}
        # The rows of a model's several metrics all carry its share of the run's time.
        shares = {
            (row["model"], row["recipe"], row["dataset"]): row["seconds"] for row in entry["rows"]
        }
        entry["seconds"] = entry.get("spectrum_seconds", 0.0) + sum(shares.values())
    problems = _problems(entry)
    if problems:
        raise RunError(f"{run.path}: cannot be recorded: {problems[0]}.")
    path = folder / f"table-{entry['table']}" / f"{name}.json"
    if path.exists() and not replace:
        raise RunError(f"{path}: recorded before; take another --name, or --replace it.")
    write_json(path, sealed(entry))
    return path


def _first(known: dict[str, Any], recipes: Sequence[str]) -> list[str]:
    """The recipe of the models that those of others start from, if any of these do."""
    if START not in known:
        return []
    chosen = [
        settings
        for name in recipes
        for models in known[name].values()
        for settings in models.values()
    ]
    return [START] if any(settings["start"] for settings in chosen) else []


def check(folder: Path) -> list[str]:
    """What is wrong with the ledger, or with the tables shown from it; empty if all is well."""
    problems = [
        f"{path}: {problem}"
        for path, entry in entries(folder)
        if path.parent.name.startswith("table-")  # benchmarks have their own
        for problem in _problems(entry)
    ]
    if problems:  # no table can be made of such entries
        return problems
    for path in documents(folder):
        text = path.read_text(encoding="utf-8")
        try:
            if rendered(text, folder) != text:
                problems.append(f"{path}: a table differs from the ledger; run `make tables`")
        except ConfigError as error:
            problems.append(f"{path}: {error}")
    return problems


def write_tables(folder: Path) -> list[Path]:
    """Bring every table in README and docs up to date; returns the files that changed."""
    changed = []
    for path in documents(folder):
        text = path.read_text(encoding="utf-8")
        fresh = rendered(text, folder)
        if fresh != text:
            write_text(path, fresh)
            changed.append(path)
    return changed


def rendered(text: str, folder: Path) -> str:
    """``text`` with each ``<!-- results:table-N -->`` block made anew from that table's entries.

    ``results:table-N-beyond`` shows the data sets that the paper's table does not have,
    ``results:summary`` Tables 1 to 3 in one. What was measured again is shown once.
    """

    def block(match: re.Match[str]) -> str:
        if match["name"] == "summary":
            tables = (latest(_valid_entries(folder / f"table-{number}")) for number in (1, 2, 3))
            return f"{match[1]}{summary_table(list(filter(None, tables)))}{match[4]}"
        name = match["name"].removesuffix("-beyond")
        found = _valid_entries(folder / name)
        if not found:
            raise ConfigError(f"block results:{match['name']} has no entry in {folder}.")
        table = markdown_table(latest(found), beyond=name != match["name"])
        return f"{match[1]}{table}{match[4]}"

    return _BLOCK.sub(block, text)


def documents(folder: Path) -> list[Path]:
    """The pages that show tables of the ledger."""
    root = folder.parent
    return sorted(path for pattern in _SHOWN for path in root.glob(pattern))


def _problems(entry: Any) -> list[str]:
    if not isinstance(entry, dict):
        return [f"an entry should be an object, not {entry!r}"]
    problems: list[str] = []
    for key, kind in _ENTRY_KEYS.items():
        accepted = (int, float) if kind is float else kind
        if not isinstance(entry.get(key), accepted):
            problems.append(f"{key} should be {kind.__name__}, not {entry.get(key)!r}")
    if entry.get("schema") not in (None, SCHEMA):
        problems.append(f"schema {entry['schema']!r} is not {SCHEMA}")
    rows = entry.get("rows")
    if rows == []:
        problems.append("rows is empty")
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        missing = [key for key in _ROW_KEYS if not isinstance(row, dict) or key not in row]
        if missing:
            problems.append(f"row {number} lacks {', '.join(missing)}")
        elif not isinstance(row["mean"], int | float) or not math.isfinite(row["mean"]):
            problems.append(f"row {number}: mean is {row['mean']!r}")
    return problems or _unshown(entry)


def _unshown(entry: dict[str, Any]) -> list[str]:
    """What keeps an entry from being a table: a figure that is missing, or is none."""
    try:
        for beyond in (False, True):
            with suppress(ConfigError):  # none of its rows is of this half
                markdown_table([entry], beyond=beyond)
    except MALFORMED as error:
        return [f"no table can be made of it ({type(error).__name__}: {error})"]
    return []
