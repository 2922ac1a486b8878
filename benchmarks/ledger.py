r"""The ledger of recorded results, from which the tables of README and docs are made.

``python -m benchmarks.ledger add runs/table-1`` records a run of ``specformer table`` in
``results/``. ``tables`` rewrites the tables of README and docs, those of benchmarks too. ``check``
changes nothing and reports problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.tables import bench_blocks, markdown_lines
from specformer.cli import main
from specformer.cli.options import Shared, shares, split_names
from specformer.cli.output import echo, print_json
from specformer.errors import ConfigError, RunError
from specformer.files import write_json, write_text
from specformer.files.documents import MALFORMED, sealed
from specformer.paper.published import TABLE_2
from specformer.paper.recorded import ENTRY_KEYS, SCHEMA, entries, latest, problems, results_folder
from specformer.paper.table_rows import (
    CITED,
    at_end,
    caption,
    contestant_name,
    interval,
    paper_order,
    plain_interval,
    table_grid,
    with_cited,
)
from specformer.reports.looks import look
from specformer.reports.numbers import error
from specformer.tasks.recipes.settings import START
from specformer.training.evaluation.graph_metrics import METRICS, metric_named
from specformer.training.runs.folder import RunFolder

app = typer.Typer(name="ledger", add_completion=False, pretty_exceptions_enable=False)
_BLOCK = re.compile(
    r"(<!-- results:(?P<name>summary|table-[\w./-]+) -->\n)(?P<body>.*?)(<!-- /results -->)",
    re.DOTALL,
)
_SHOWN = ("README.md", "docs/**/*.md")
#: By table: the first cell of a line of the summary, and how its numbers are written.
_SUMMARY: dict[int, tuple[str, Callable[[dict[str, Any]], str]]] = {
    1: ("{} filter: squared error", lambda row: error(row["mean"])),
    2: ("{}: accuracy, %", interval),
    3: ("{}: {}", plain_interval),
}


def markdown_table(entries: Sequence[dict[str, Any]], *, beyond: bool = False) -> str:
    """Recorded entries as one Markdown table, with lines on how they were measured.

    It has the data sets of the paper or, with ``beyond``, the others.
    """
    table = entries[0]["table"]
    entries = [
        {**entry, "rows": kept}
        for entry in entries
        if (kept := [row for row in entry["rows"] if _is_papers(table, row) != beyond])
    ]
    if not entries:
        raise ConfigError("no recorded row belongs in this table.")
    rows = sorted((row for entry in entries for row in entry["rows"]), key=paper_order)
    return "\n".join([_grid(table, with_cited(table, rows)), *_provenance(entries), ""])


def summary_table(tables: Sequence[Sequence[dict[str, Any]]]) -> str:
    """Entries of Tables 1 to 3 in one table, a line per filter or data set of the paper.

    The columns are Specformer with the paper's settings and with ours, the paper's own number, and
    the best other model, by our runs or by the paper's. Ours are at the best validation score if
    that was recorded.
    """
    header = ["", "by the paper’s settings", "by ours", "the paper", "best other model"]
    lines = [line for entries in tables for line in _summary_lines(entries[0]["table"], entries)]
    return "\n".join([*markdown_lines(header, lines), ""])


def _summary_lines(table: int, entries: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    told, write = _SUMMARY[table]
    rows = [row for entry in entries for row in entry["rows"] if _is_papers(table, row)]
    found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    known = with_cited(table, rows, of_all=True)  # a run of ours may fall short of the paper's
    for row in sorted(known, key=lambda row: "-by-" in row["metric"]):
        if row["metric"] != "r2" and not row["metric"].endswith(at_end("")):
            found.setdefault(row["dataset"], {})[row["model"], row["recipe"]] = row
    for name, group in found.items():
        metric = next(iter(group.values()))["metric"].split("-")[0]
        pick = min if metric == "sse" or metric_named(metric).lower else max
        others = [row for (model, _), row in group.items() if model != "specformer"]
        paper, ours, other = (
            group.get(("specformer", "paper")),
            group.get(("specformer", "projected" if table == 1 else "best")),
            pick(others, key=lambda row: row["mean"]) if others else None,
        )
        best = pick(row["mean"] for row in (paper, ours, other) if row)
        cells = [_figure(row, write, best) for row in (paper, ours, other)]
        cited = next((row["paper"] for row in (paper, ours) if row and row["paper"]), None)
        cells.insert(2, "–" if cited is None else write({"mean": cited, "ci95": None}))
        yield [told.format(name, METRICS[metric].label if metric in METRICS else ""), *cells]


def _figure(row: dict[str, Any] | None, write: Callable[[dict[str, Any]], str], best: float) -> str:
    """A number in the summary: the best in bold, and with the model's name if it is not ours."""
    if row is None:
        return "–"
    text = f"**{write(row)}**" if row["mean"] == best else write(row)
    if row["model"] == "specformer":
        return text
    cited = ", cited" if row["recipe"] == CITED else ""
    return f"{text} {look(row['model']).label}{cited}"


def _grid(table: int, rows: Sequence[dict[str, Any]]) -> str:
    """A table with the best in bold, and a line that explains its cells."""
    header, cells, bold = table_grid(table, rows)
    shown = [
        [f"**{cell}**" if column in strong else cell for column, cell in enumerate(line)]
        for line, strong in zip(cells, bold, strict=True)
    ]
    told = f"{caption(table)}, {_runs(rows)}; best in bold."
    return "\n".join([*markdown_lines(header, shown), "", told, ""])


def _runs(rows: Sequence[dict[str, Any]]) -> str:
    counts = sorted({row["runs"] for row in rows if row["recipe"] != CITED})
    if counts == [1]:
        return "one run"
    return f"{counts[0]} to {counts[-1]} runs" if len(counts) > 1 else f"{counts[0]} runs"


def _is_papers(table: int, row: dict[str, Any]) -> bool:
    """Whether a row's data set is one of the paper's table."""
    return table != 2 or row["dataset"] in TABLE_2["specformer"]


def _provenance(entries: Sequence[dict[str, Any]]) -> list[str]:
    """One line for all entries measured in the same way, with their total time."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        environment = entry["environment"]
        how = (
            f"one {environment['device']}, PyTorch {environment['packages']['torch']}, "
            f"seed {entry['seed']}, commit {environment['commit']}"
        )
        groups.setdefault(how, []).append(entry)
    lines = []
    for how, group in groups.items():
        rows = [row for entry in group for row in entry["rows"]]
        names = dict.fromkeys(contestant_name(row["model"], row["recipe"]) for row in rows)
        seconds = sum(entry["seconds"] for entry in group)
        lines.append(f"- {'; '.join(names)}: {seconds:.0f} s on {how}.")
    return lines


def add(
    run: RunFolder,
    folder: Path,
    name: str | None = None,
    recipes: Sequence[str] | None = None,
    *,
    replace: bool = False,
) -> Path:
    """Record a finished run of a table: all of it, or only the rows of some recipes.

    Refuses a name that exists already, unless ``replace`` is true.
    """
    result = run.result()
    if "table" not in result:
        raise RunError(f"{run.path}: only runs of `specformer table` go into the ledger.")
    name = name or run.path.resolve().name
    if Path(name).name != name or name == "..":
        raise ConfigError(f"--name {name}: the name must not contain folders.")
    entry: dict[str, Any] = {"schema": SCHEMA, "name": name}
    entry |= {key: result[key] for key in ENTRY_KEYS if key not in entry and key in result}
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
    if wrong := _wrong(entry):
        raise RunError(f"{run.path}: cannot be recorded: {wrong[0]}.")
    path = folder / f"table-{entry['table']}" / f"{name}.json"
    if path.exists() and not replace:
        raise RunError(f"{path}: recorded before; take another --name, or --replace it.")
    write_json(path, sealed(entry))
    return path


def _first(known: dict[str, Any], recipes: Sequence[str]) -> list[str]:
    """The recipe ``start``, if some of these recipes train from its models."""
    if START not in known:
        return []
    chosen = [
        settings
        for name in recipes
        for models in known[name].values()
        for settings in models.values()
    ]
    return [START] if any(settings["start"] for settings in chosen) else []


def _wrong(entry: Any) -> list[str]:
    """The problems of an entry, also those of its table."""
    found = problems(entry)
    if not found:
        try:
            for beyond in (False, True):
                with suppress(ConfigError):  # no rows for this table
                    markdown_table([entry], beyond=beyond)
        except MALFORMED as error:
            found = [f"no table can be made of it ({type(error).__name__}: {error})"]
    return found


def check(folder: Path) -> list[str]:
    """The problems of the ledger and of the tables made from it; empty if there are none."""
    found = [
        f"{path}: {problem}"
        for path, entry in entries(folder)
        if path.parent.name.startswith("table-")  # entries of benchmarks are checked elsewhere
        for problem in _wrong(entry)
    ]
    if found:  # such entries make no table
        return found
    for path in documents(folder):
        text = path.read_text(encoding="utf-8")
        try:
            if rendered(text, folder) != text:
                found.append(f"{path}: a table differs from the ledger; run `make tables`")
        except (ConfigError, RunError) as error:
            found.append(f"{path}: {error}")
    return found


def write_tables(folder: Path) -> list[Path]:
    """Update every table in README and docs; returns the files that changed."""
    changed = []
    for path in documents(folder):
        text = path.read_text(encoding="utf-8")
        fresh = rendered(text, folder)
        if fresh != text:
            write_text(path, fresh)
            changed.append(path)
    return changed


def rendered(text: str, folder: Path) -> str:
    """``text`` with each ``<!-- results:table-N -->`` block made again from that table's entries.

    ``results:table-N-beyond`` shows the data sets that are not in the paper's table, and
    ``results:summary`` shows Tables 1 to 3 in one. :mod:`benchmarks.tables` makes
    ``results:bench``, ``results:reliability`` and ``results:waiting``. If something was measured
    several times, only the newest result is shown.
    """

    def block(match: re.Match[str]) -> str:
        if match["name"] == "summary":
            tables = (latest(folder / f"table-{number}") for number in (1, 2, 3))
            return f"{match[1]}{summary_table(list(filter(None, tables)))}{match[4]}"
        name = match["name"].removesuffix("-beyond")
        found = latest(folder / name)
        if not found:
            raise ConfigError(f"block results:{match['name']} has no entry in {folder}.")
        table = markdown_table(found, beyond=name != match["name"])
        return f"{match[1]}{table}{match[4]}"

    return _BLOCK.sub(block, bench_blocks(text, folder))


def documents(folder: Path) -> list[Path]:
    """The pages that may show tables of the ledger."""
    root = folder.parent
    return sorted(path for pattern in _SHOWN for path in root.glob(pattern))


@app.command("check")
@shares("results", "json")
def check_command(shared: Shared) -> None:
    """Check every recorded entry, and that all tables are up to date."""
    folder = results_folder(shared.results)
    found = check(folder)
    count = sum(1 for _ in entries(folder))
    if shared.json:
        print_json({"entries": count, "problems": found})
    else:
        for problem in found:
            echo(problem, err=True)
        echo(f"{count} entries, {len(found)} problems.")
    if found:
        raise typer.Exit(1)


@app.command("tables")
@shares("results", "json")
def tables_command(shared: Shared) -> None:
    """Rewrite the tables of README and docs from the ledger."""
    updated = [str(path) for path in write_tables(results_folder(shared.results))]
    if shared.json:
        print_json({"updated": updated})
        return
    for path in updated:
        echo(f"updated {path}")


@app.command("add")
@shares("results", "json")
def add_command(
    run: Annotated[Path, typer.Argument(help="A finished run of `specformer table`.")],
    shared: Shared,
    name: Annotated[
        str | None, typer.Option(help="Name of the entry. (default: that of the folder)")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Record only these recipes, comma-separated. (default: all)")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an entry of the same name.")
    ] = False,
) -> None:
    """Record a run in the ledger."""
    folder = results_folder(shared.results)
    entry = add(RunFolder.open(run), folder, name, split_names(recipes), replace=replace)
    if shared.json:
        print_json({"recorded": str(entry)})
    else:
        echo(f"recorded {entry}")


if __name__ == "__main__":
    main(app)
