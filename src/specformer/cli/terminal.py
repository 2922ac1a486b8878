r"""Tables of results on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from specformer.cli.output import clear_line, printable
from specformer.paper.table_rows import caption, table_grid
from specformer.reports.looks import look
from specformer.reports.numbers import NONE, error, r_squared
from specformer.reports.sections.node_section import figure_label
from specformer.reports.sections.report_tables import targets_of
from specformer.reports.standings import figure
from specformer.training.evaluation.graph_metrics import metric_named

#: The width between two cells of a table.
_MARGIN = 2


def show_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 2,
    again: int | None = None,
) -> None:
    """Print a table, the first ``left`` columns flush left, the others flush right.

    A table that is too wide continues below, with its first ``again`` columns repeated, by default
    the ``left`` ones.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = [[escape(name), *(row[i] for row in rows)] for i, name in enumerate(header)]
    widths = [max(Text.from_markup(cell).cell_len for cell in column) for column in columns]
    # Piped output has no width: there each row is one line.
    all_columns = max(160, sum(width + _MARGIN for width in widths))
    console = Console() if sys.stdout.isatty() else Console(width=all_columns)
    for number, part in enumerate(_parts(widths, left if again is None else again, console.width)):
        shown = Table(
            title=None if number else escape(printable(title)),
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            show_header=any(header),
            padding=(0, 1, 0, 0),
        )
        for column in part:
            side: Literal["left", "right"] = "left" if column < left else "right"
            shown.add_column(escape(header[column]), justify=side, overflow="fold")
        for row in rows:
            shown.add_row(*(row[column] for column in part))
        clear_line()
        console.print(shown, "")


def _parts(widths: Sequence[int], again: int, room: int) -> list[list[int]]:
    """Columns of tables that fit ``room``, if possible; each table begins with the first ones."""
    first = list(range(again))
    used = full = sum(widths[column] + _MARGIN for column in first)
    parts = [list(first)]
    for column in range(again, len(widths)):
        if used + widths[column] + _MARGIN > room and len(parts[-1]) > again:
            parts.append(list(first))
            used = full
        parts[-1].append(column)
        used += widths[column] + _MARGIN
    return parts


def show_paper_table(table: int, rows: Sequence[dict[str, Any]]) -> None:
    """Print one of the paper's tables, the best of each column in bold."""
    header, cells, bold = table_grid(table, rows)
    lines = [
        [
            f"[bold]{escape(cell)}[/bold]" if i in strong else escape(cell)
            for i, cell in enumerate(line)
        ]
        for line, strong in zip(cells, bold, strict=True)
    ]
    show_table(f"Table {table} · {caption(table)}", header, lines, left=1)


def show_rows(kind: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print what training gave, one line per model; ``kind`` is as in results."""
    title, cells = _KINDS[kind]
    lines = []
    for row in rows:
        on = {"filter": row["filter"]} if kind == "filters" else {"data": row["dataset"]}
        line = {
            **{name: escape(value) for name, value in on.items()},
            "model": look(row["model"]).label,
            "parameters": f"{row['parameters']:,}",
            **cells(row),
        }
        if kind != "molecules":
            line["epochs"] = f"{row['epochs']:.0f}"
        lines.append({**line, "seconds": f"{row['seconds']:.1f}"})
    header = list(dict.fromkeys(name for line in lines for name in line))
    show_table(title, header, [[line.get(name, NONE) for name in header] for line in lines])
    of_targets = [
        (
            escape(row["dataset"]),
            look(row["model"]).label,
            escape(target),
            figure(row, figures) if figures else NONE,
        )
        for row in rows
        for target, figures in targets_of(row).items()
    ]
    if of_targets:
        show_table("Their targets", ("data", "model", "target", "test"), of_targets, left=3)


def _tested(row: dict[str, Any]) -> dict[str, str]:
    return {f"test {metric_named(row['metric']).label}": figure(row, row["test"])}


def _of_molecules(row: dict[str, Any]) -> dict[str, str]:
    cells = _tested(row)
    if "test_together" in row:
        cells["runs together"] = figure(row, {"mean": row["test_together"], "ci95": None})
    each = f"{row['seconds_per_epoch']:.2f}"
    return {**cells, "validation": figure(row, row["val"]), "s/epoch": each}


#: The title of each kind of training, and the cells of its rows besides costs.
_KINDS: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, str]]]] = {
    "filters": (
        "Learned filters",
        lambda row: {"SSE": error(row["sse"]["mean"]), "R²": r_squared(row["r2"]["mean"])},
    ),
    "nodes": ("Nodes", _tested),
    "links": (
        "Links",
        lambda row: {
            figure_label(name): figure({"metric": name}, reached)
            for name, reached in row["figures"]["test"].items()
        },
    ),
    "molecules": ("Many graphs", _of_molecules),
}
