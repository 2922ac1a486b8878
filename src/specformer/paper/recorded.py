r"""Recorded results as Markdown, each table with how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from specformer.errors import ConfigError
from specformer.paper.published import TABLE_2
from specformer.paper.table_rows import (
    BRIEF,
    CITED,
    caption,
    contestant_name,
    paper_order,
    table_grid,
    with_cited,
)


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


def brief_table(entries: Sequence[dict[str, Any]]) -> str:
    """Recorded entries of a table without what is not ours, nor how they were measured.

    Table 2 has one line a model and one figure a cell: that of the settings found for a model on a
    set, where there are any; Specformer also has a line with the paper's.
    """
    table = entries[0]["table"]
    rows = [row for entry in entries for row in entry["rows"] if _is_papers(table, row)]
    if not rows:
        raise ConfigError("no recorded row belongs in this table.")
    if table != 2:
        return _grid(table, [row for row in with_cited(table, rows) if row["recipe"] != CITED])
    shown: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=paper_order):  # tuned settings last, so they stay
        recipe = row["recipe"] if row["model"] == "specformer" else "default"
        cell = row["model"], recipe, row["dataset"], row["metric"]
        shown[cell] = {**row, "recipe": recipe}
    return _grid(BRIEF, list(shown.values()))


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


def _grid(table: int | str, rows: Sequence[dict[str, Any]]) -> str:
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
