r"""Tables as people read them: ours beside the paper's, models down, data sets across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specformer.reports.numbers import error, r_squared
from specformer.reports.style import look

_ORDER = ("gcn", "gat", "chebnet", "gprgnn", "bernnet", "jacobiconv", "specformer")


def contestant_name(model: str, recipe: str) -> str:
    """A model's name, with its recipe unless that is the paper's.

    Example:
        >>> contestant_name("specformer", "projected")
        'Specformer, projected'
    """
    return look(model).label + ("" if recipe == "paper" else f", {recipe}")


def table_grid(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]], list[set[int]]]:
    """Header, cells and, per row, the columns where it is the best of its own table.

    A cell holds the mean SSE, R² behind it, and the paper's SSE in brackets.
    """
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    keys = list(dict.fromkeys((row["model"], row["recipe"]) for row in rows))
    found = {(row["model"], row["recipe"], row["dataset"], row["metric"]): row for row in rows}
    header = ["model", "parameters", *datasets]
    best = {
        name: min(
            found[(*key, name, "sse")]["mean"] for key in keys if (*key, name, "sse") in found
        )
        for name in datasets
    }
    cells, bold = [], []
    for model, recipe in keys:
        line, strong = [contestant_name(model, recipe), ""], set()
        for column, name in enumerate(datasets):
            sse = found.get((model, recipe, name, "sse"))
            r2 = found.get((model, recipe, name, "r2"))
            if sse is None:
                line.append("–")
                continue
            line[1] = f"{sse['parameters']:,}"
            line.append(
                f"{error(sse['mean'])} ({r_squared(r2['mean'] if r2 else None)}) "
                f"[{error(sse['paper'])}]"
            )
            if sse["mean"] == best[name]:
                strong.add(column + 2)
        cells.append(line)
        bold.append(strong)
    return header, cells, bold


def markdown_table(entries: Sequence[dict[str, Any]]) -> str:
    """Recorded entries as one Markdown table with a line on how each was measured."""
    rows = sorted((row for entry in entries for row in entry["rows"]), key=paper_order)
    header, cells, bold = table_grid(rows)
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for line, strong in zip(cells, bold, strict=True):
        shown = [f"**{cell}**" if column in strong else cell for column, cell in enumerate(line)]
        lines.append("| " + " | ".join(shown) + " |")
    runs = max(row["runs"] for row in rows)
    lines += ["", f"Mean SSE (R²) [the paper's SSE] over {runs} images; best in bold.", ""]
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
