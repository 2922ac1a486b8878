r"""What people see on the terminal at the end: tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from specformer.cli.output import clear_line, echo, printable
from specformer.paper.table_rows import caption, interval, plain_interval, table_grid
from specformer.reports.looks import look
from specformer.reports.numbers import NONE, error, r_squared
from specformer.reports.sections.node_section import figure_label
from specformer.reports.sections.report_tables import by_target
from specformer.reports.standings import comparison_lines, verdict
from specformer.training.evaluation.graph_metrics import metric_named

#: What a table puts around a cell: a line and two spaces.
_MARGIN = 3


def show_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 2,
    again: int | None = None,
) -> None:
    """Print a table, the first ``left`` columns flush left, figures flush right.

    What is too wide goes on below, the first ``again`` columns, by default those on the left, once
    more.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = [[escape(name), *(row[i] for row in rows)] for i, name in enumerate(header)]
    widths = [max(Text.from_markup(cell).cell_len for cell in column) for column in columns]
    # Piped output has no width of its own: there a row is a line.
    all_columns = max(160, 1 + sum(width + _MARGIN for width in widths))
    console = Console() if sys.stdout.isatty() else Console(width=all_columns)
    for number, part in enumerate(_parts(widths, left if again is None else again, console.width)):
        shown = Table(title=None if number else escape(printable(title)))
        for column in part:
            side: Literal["left", "right"] = "left" if column < left else "right"
            shown.add_column(escape(header[column]), justify=side, overflow="fold")
        for row in rows:
            shown.add_row(*(row[column] for column in part))
        clear_line()
        console.print(shown)


def _parts(widths: Sequence[int], again: int, room: int) -> list[list[int]]:
    """Columns of tables no wider than ``room``, if they can be; each begins with the first ones."""
    first = list(range(again))
    used = full = 1 + sum(widths[column] + _MARGIN for column in first)
    parts = [list(first)]
    for column in range(again, len(widths)):
        if used + widths[column] + _MARGIN > room and len(parts[-1]) > again:
            parts.append(list(first))
            used = full
        parts[-1].append(column)
        used += widths[column] + _MARGIN
    return parts


def show_paper_table(table: int, rows: Sequence[dict[str, Any]]) -> None:
    """One of the paper's tables, the best of each column in bold."""
    header, cells, bold = table_grid(table, rows)
    lines = [
        [
            f"[bold]{escape(cell)}[/bold]" if i in strong else escape(cell)
            for i, cell in enumerate(line)
        ]
        for line, strong in zip(cells, bold, strict=True)
    ]
    show_table(f"Table {table} · {caption(table)}", header, lines, left=1)


def show_filters(rows: Sequence[dict[str, Any]]) -> None:
    """Learned filters, a line each."""
    lines = [
        (
            row["filter"],
            look(row["model"]).label,
            f"{row['parameters']:,}",
            error(row["sse"]["mean"]),
            r_squared(row["r2"]["mean"]),
            f"{row['epochs']:.0f}",
            f"{row['seconds']:.1f}",
        )
        for row in rows
    ]
    header = ("filter", "model", "parameters", "SSE", "R²", "epochs", "seconds")
    show_table("Learned filters", header, lines)


def show_nodes(rows: Sequence[dict[str, Any]]) -> None:
    """Learning on nodes, one line per model; accuracies in per cent."""
    lines = []
    for row in rows:
        metric = metric_named(row.get("metric") or "accuracy")
        write = interval if metric.name == "accuracy" else plain_interval
        lines.append(
            (
                escape(row["dataset"]),
                look(row["model"]).label,
                f"{row['parameters']:,}",
                metric.label + (", %" if write is interval else ""),
                write(row["test"]),
                write(row[f"test_by_{metric.name}"]),
                f"{row['epochs']:.0f}",
                f"{row['seconds']:.1f}",
            )
        )
    header = ["data", "model", "parameters", "metric", "test", "by val. metric", "epochs"]
    show_table("Nodes", [*header, "seconds"], lines)


def show_links(rows: Sequence[dict[str, Any]]) -> None:
    """Learning on links, one line per model, with all figures of the test links."""
    header = ["data", "model", "parameters"]
    names = list(dict.fromkeys(name for row in rows for name in row["figures"]["test"]))
    lines = [
        (
            escape(row["dataset"]),
            look(row["model"]).label,
            f"{row['parameters']:,}",
            *(
                plain_interval(row["figures"]["test"][name])
                if name in row["figures"]["test"]
                else NONE
                for name in names
            ),
            f"{row['epochs']:.0f}",
            f"{row['seconds']:.1f}",
        )
        for row in rows
    ]
    show_table("Links", [*header, *map(figure_label, names), "epochs", "seconds"], lines)


def show_molecules(rows: Sequence[dict[str, Any]]) -> None:
    """Predictions for many graphs, one line per model."""
    together = any("test_together" in row for row in rows)
    lines = [
        (
            escape(row["dataset"]),
            look(row["model"]).label,
            f"{row['parameters']:,}",
            metric_named(row["metric"]).label,
            plain_interval(row["test"]),
            *([_together(row)] if together else []),
            plain_interval(row["val"]),
            f"{row['seconds_per_epoch']:.2f}",
            f"{row['seconds']:.1f}",
        )
        for row in rows
    ]
    joint = ["runs together"] if together else []
    header = ["data", "model", "parameters", "metric", "test", *joint, "validation", "s/epoch"]
    show_table("Many graphs", [*header, "seconds"], lines)
    if several := by_target(rows):
        of_targets = [
            (
                escape(row["dataset"]),
                look(row["model"]).label,
                escape(row["target"]),
                plain_interval(row["test"]) if row["test"] else NONE,
            )
            for row in several
        ]
        show_table("Their targets", ("data", "model", "target", "test"), of_targets, left=3)


def _together(row: dict[str, Any]) -> str:
    figure = row.get("test_together")
    return NONE if figure is None else plain_interval({"mean": figure, "ci95": None})


def show_comparison(result: Mapping[str, Any]) -> None:
    """Compared models, one line each, and which differences hold."""
    header, lines = comparison_lines(result)
    cells = [[escape(cell) for cell in line] for line in lines]
    show_table(str(result["title"]), header, cells)
    echo(verdict(result))


#: How the rows of each kind of training are shown.
SHOW: dict[str, Callable[[Sequence[dict[str, Any]]], None]] = {
    "filters": show_filters,
    "nodes": show_nodes,
    "links": show_links,
    "molecules": show_molecules,
}
