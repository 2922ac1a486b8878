r"""Recorded results as Markdown, each table with how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from specformer.errors import ConfigError
from specformer.paper.published import TABLE_2
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
from specformer.training.evaluation.graph_metrics import METRICS, metric_named

#: By table: what a line of the summary is of, and its figures as text.
_SUMMARY: dict[int, tuple[str, Callable[[dict[str, Any]], str]]] = {
    1: ("{} filter: squared error", lambda row: error(row["mean"])),
    2: ("{}: accuracy, %", interval),
    3: ("{}: {}", plain_interval),
}


def markdown_table(entries: Sequence[dict[str, Any]], *, beyond: bool = False) -> str:
    """Recorded entries as one Markdown table with a line on how they were measured.

    The data sets are the paper's or, with ``beyond``, the others.
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

    Specformer by the paper's settings and by ours, the paper's own figure, and the best of the
    other models, all at the best validation figure where that was recorded.
    """
    header = ["", "by the paper’s settings", "by ours", "the paper", "best other model"]
    lines = [line for entries in tables for line in _summary_lines(entries[0]["table"], entries)]
    return "\n".join([*markdown_lines(header, lines), ""])


def _summary_lines(table: int, entries: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    told, write = _SUMMARY[table]
    rows = [row for entry in entries for row in entry["rows"] if _is_papers(table, row)]
    found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for row in sorted(with_cited(table, rows), key=lambda row: "-by-" in row["metric"]):
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
    """A figure in a summary, the best in bold, one of another model with its name."""
    if row is None:
        return "–"
    text = f"**{write(row)}**" if row["mean"] == best else write(row)
    if row["model"] == "specformer":
        return text
    cited = ", cited" if row["recipe"] == CITED else ""
    return f"{text} {look(row['model']).label}{cited}"


def markdown_lines(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of Markdown."""
    first, *others = (f"| {' | '.join(line)} |" for line in (header, *cells))
    return [first, "|" + "---|" * len(header), *others]


def newest_rows(
    entries: Sequence[Mapping[str, Any]],
    cell: Callable[[Mapping[str, Any], Mapping[str, Any]], Hashable],
) -> list[dict[str, Any]]:
    """Entries without the rows whose cell, told from entry and row, a later entry has too."""
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


def _grid(table: int, rows: Sequence[dict[str, Any]]) -> str:
    """A table, the best in bold, and a line on what its cells hold."""
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
    """A line for all that was measured the same way, with the time it took together."""
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
