r"""Tables as people read them: ours beside the paper's, models down, data sets across."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specformer.reports.numbers import error, r_squared
from specformer.reports.style import look

_ORDER = (
    "mlp",
    "gcn",
    "gat",
    "h2gcn",
    "gcnii",
    "lanczosnet",
    "chebnet",
    "gprgnn",
    "bernnet",
    "chebnetii",
    "jacobiconv",
    "transformer",
    "graphormer",
    "specformer",
)


@dataclass(frozen=True)
class _Style:
    """How one table's cells are written from rows by metric; ``best`` of the first metric."""

    metric: str
    best: Callable[[Iterable[float]], float]
    cell: Callable[[dict[str, dict[str, Any]]], str]
    caption: str


def _signal_cell(rows: dict[str, dict[str, Any]]) -> str:
    sse, r2 = rows["sse"], rows.get("r2", {"mean": None})
    return f"{error(sse['mean'])} ({r_squared(r2['mean'])}) [{error(sse['paper'])}]"


def _node_cell(rows: dict[str, dict[str, Any]]) -> str:
    by_loss, by_accuracy = rows["accuracy"], rows["accuracy-by-accuracy"]
    paper = by_loss["paper"]
    cited = "–" if paper is None else f"{100 * paper:.2f}"
    return f"{interval(by_loss)} ({100 * by_accuracy['mean']:.2f}) [{cited}]"


_STYLES = {
    1: _Style("sse", min, _signal_cell, "Mean SSE (R²) [the paper's SSE]"),
    2: _Style(
        "accuracy",
        max,
        _node_cell,
        "Test accuracy, %, ± 95% interval at the lowest validation loss (at the highest validation "
        "accuracy) [the paper's]",
    ),
}


def interval(row: dict[str, Any]) -> str:
    """A fraction of 1 as per cent with its 95% interval, if it has one.

    Example:
        >>> interval({"mean": 0.885, "ci95": 0.0101}), interval({"mean": 0.885, "ci95": None})
        ('88.50 ± 1.01', '88.50')
    """
    spread = "" if row["ci95"] is None else f" ± {100 * row['ci95']:.2f}"
    return f"{100 * row['mean']:.2f}{spread}"


def caption(table: int) -> str:
    """What a cell of that table holds."""
    return _STYLES[table].caption


def contestant_name(model: str, recipe: str) -> str:
    """A model's name, with its recipe unless that is the paper's.

    Example:
        >>> contestant_name("specformer", "projected")
        'Specformer, projected'
    """
    plain = recipe == "paper" or model != "specformer"
    return look(model).label + ("" if plain else f", {recipe}")


def table_grid(
    table: int, rows: Sequence[dict[str, Any]]
) -> tuple[list[str], list[list[str]], list[set[int]]]:
    """Header, cells and, per row, the columns where it is the best; see :func:`caption`."""
    style = _STYLES[table]
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    found: dict[tuple[str, str], dict[str, dict[str, dict[str, Any]]]] = {}
    for row in rows:
        contestant = found.setdefault((row["model"], row["recipe"]), {})
        contestant.setdefault(row["dataset"], {})[row["metric"]] = row
    best = {
        name: style.best(
            cells[name][style.metric]["mean"] for cells in found.values() if name in cells
        )
        for name in datasets
    }
    lines, bold = [], []
    for (model, recipe), cells in found.items():
        counts = [cells[name][style.metric]["parameters"] for name in datasets if name in cells]
        span = sorted({min(counts), max(counts)})
        line = [contestant_name(model, recipe), "–".join(f"{count:,}" for count in span)]
        line += [style.cell(cells[name]) if name in cells else "–" for name in datasets]
        lines.append(line)
        bold.append(
            {
                column + 2
                for column, name in enumerate(datasets)
                if name in cells and cells[name][style.metric]["mean"] == best[name]
            }
        )
    return ["model", "parameters", *datasets], lines, bold


def table_row(
    entry: dict[str, Any],
    *,
    dataset: str,
    metric: str,
    values: dict[str, Any],
    runs: int,
    paper: float | None,
) -> dict[str, Any]:
    """A row as the command line's JSON and the ledger have it."""
    return {
        "model": entry["model"],
        "recipe": entry["recipe"],
        "dataset": dataset,
        "metric": metric,
        "mean": values["mean"],
        "ci95": values["ci95"],
        "runs": runs,
        "paper": paper,
        "parameters": entry["parameters"],
        "seconds": entry["seconds"],
    }


def markdown_table(entries: Sequence[dict[str, Any]]) -> str:
    """Recorded entries as one Markdown table with a line on how each was measured."""
    rows = sorted((row for entry in entries for row in entry["rows"]), key=paper_order)
    table = entries[0]["table"]
    header, cells, bold = table_grid(table, rows)
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for line, strong in zip(cells, bold, strict=True):
        shown = [f"**{cell}**" if column in strong else cell for column, cell in enumerate(line)]
        lines.append("| " + " | ".join(shown) + " |")
    runs = max(row["runs"] for row in rows)
    lines += ["", f"{caption(table)}, {runs} runs; best in bold.", ""]
    for entry in entries:
        environment = entry["environment"]
        lines.append(
            f"- {', '.join(_contestants(entry))}: {entry['seconds']:.0f} s on one "
            f"{environment['device']}, PyTorch {environment['packages']['torch']}, "
            f"seed {entry['seed']}, commit {environment['commit']}."
        )
    return "\n".join([*lines, ""])


def _contestants(entry: dict[str, Any]) -> list[str]:
    return list(
        dict.fromkeys(contestant_name(row["model"], row["recipe"]) for row in entry["rows"])
    )


def paper_order(row: dict[str, Any]) -> int:
    """Where a row's model stands in the paper's tables."""
    return _ORDER.index(row["model"]) if row["model"] in _ORDER else len(_ORDER)
