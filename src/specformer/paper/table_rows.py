r"""The paper's tables as text: our figures beside the paper's, models down, data sets across."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specformer.datasets import GRAPH_SETS
from specformer.paper.published import PCQM4MV2, TABLE_2, TABLE_3
from specformer.reports.looks import look
from specformer.reports.numbers import error, r_squared
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import interval95

#: Models in the order of the paper's tables, Graphormer as in Table 3, Specformer last.
_OTHERS = dict.fromkeys(["mlp", *list(TABLE_2)[:-2], *TABLE_3, *PCQM4MV2])
_ORDER = (*(model for model in _OTHERS if model != "specformer"), "specformer")
#: Stands for a recipe if the figure is the paper's and nothing was run.
CITED = "cited"
#: The names of the variants in Table 4, which stand for recipes.
VARIANT_NAMES = {
    "bare": "Medium, λ alone",
    "encoding": "Medium, ρ(λ) without attention",
    "medium": "Medium",
    "small": "Small",
    "large": "Large",
}


def by_itself(metric: str) -> str:
    """The name of a metric at the epoch where it was best on the validation part."""
    return f"{metric}-by-{metric}"


def at_end(metric: str) -> str:
    """The name of a metric at the last epoch."""
    return f"{metric}-at-end"


def _signal_cell(rows: dict[str, dict[str, Any]]) -> str:
    sse, r2 = rows["sse"], rows.get("r2", {"mean": None})
    return f"{error(sse['mean'])} ({r_squared(r2['mean'])}) [{error(sse['paper'])}]"


def _node_cell(rows: dict[str, dict[str, Any]]) -> str:
    metric, by_loss = _plain_row(rows)
    paper = by_loss["paper"]
    cited = "–" if paper is None else f"{100 * paper:.2f}"
    return f"{interval(by_loss)} ({100 * rows[by_itself(metric)]['mean']:.2f}) [{cited}]"


def _plain_row(rows: Mapping[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The main metric, and its row at the epoch that is kept."""
    return next((key, row) for key, row in rows.items() if "-" not in key and key != "r2")


def _graph_cell(rows: dict[str, dict[str, Any]]) -> str:
    metric, row = _plain_row(rows)
    if row["recipe"] == CITED:
        return f"[{plain_interval(row)}]"
    epochs = ((by_itself(metric), ""), (at_end(metric), "end "))
    others = [f"{mark}{rows[name]['mean']:.4f}" for name, mark in epochs if name in rows]
    shown = plain_interval(row) + (f" ({', '.join(others)})" if others else "")
    cited = "–" if row["paper"] is None else f"{row['paper']:.4f}"
    return f"{shown} [{cited}]"


#: For each table, the function that writes a cell from its rows by metric, and a caption.
_CELLS: dict[int, tuple[Callable[[dict[str, dict[str, Any]]], str], str]] = {
    1: (_signal_cell, "Mean SSE (R²) [the paper's SSE]"),
    2: (
        _node_cell,
        "Test accuracy, %, ± 95% interval at the lowest validation loss (at the highest validation "
        "accuracy) [the paper's]; ROC-AUC on minesweeper",
    ),
    3: (
        _graph_cell,
        "Test MAE on ZINC and PCQM4Mv2 (lower is better), ROC-AUC on MolHIV and average precision "
        "on MolPCBA (higher is better), ± 95% interval, at the epoch that the recipe keeps (at "
        "that of the best validation metric, where it is another; end: at the last) [the paper's; "
        "a row marked cited has nothing else]",
    ),
    4: (
        lambda rows: _node_cell(rows) if "accuracy" in rows else _graph_cell(rows),
        "Test accuracy as in Table 2, and average precision on MolPCBA as in Table 3, ± 95% "
        "interval [the paper's]",
    ),
}


def caption(table: int) -> str:
    """What the cells of a table hold."""
    return _CELLS[table][1]


def interval(row: dict[str, Any]) -> str:
    """A fraction of 1 in per cent with its 95% interval, if it has one.

    Example:
        >>> interval({"mean": 0.885, "ci95": 0.0101}), interval({"mean": 0.885, "ci95": None})
        ('88.50 ± 1.01', '88.50')
        >>> interval({"mean": 0.97, "ci95": 0.05})  # 0.97 ± 0.05 would leave 100%
        '97.00 (85.29 to 99.45)'
    """
    mean, spread = f"{100 * row['mean']:.2f}", row["ci95"]
    if spread is None:
        return mean
    if row["mean"] - spread >= 0.0 and row["mean"] + spread <= 1.0:
        return f"{mean} ± {100 * spread:.2f}"
    low, high = interval95(row["mean"], spread)
    return f"{mean} ({100 * low:.2f} to {100 * high:.2f})"


def plain_interval(row: dict[str, Any]) -> str:
    """A figure to four decimals with its 95% interval, if it has one.

    A figure far from 1, such as an error in the targets' units, has three digits.
    """
    mean, spread = row["mean"], row["ci95"]
    if mean != 0 and not 0.001 <= abs(mean) < 10_000:
        return error(mean) + ("" if spread is None else f" ± {error(spread, like=mean)}")
    return f"{mean:.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def contestant_name(model: str, recipe: str) -> str:
    """A model's name, with its recipe unless that is the paper's."""
    if recipe in VARIANT_NAMES:
        return VARIANT_NAMES[recipe]
    plain = recipe == "paper" or (model != "specformer" and recipe not in (CITED, "best"))
    return look(model).label + ("" if plain else f", {recipe}")


def table_grid(
    table: int, rows: Sequence[dict[str, Any]]
) -> tuple[list[str], list[list[str]], list[set[int]]]:
    """The header, the cells and, per row, the columns where it is the best."""
    datasets = sorted(dict.fromkeys(row["dataset"] for row in rows), key=_column)
    found: dict[tuple[str, str], dict[str, dict[str, dict[str, Any]]]] = {}
    for row in rows:
        contestant = found.setdefault((row["model"], row["recipe"]), {})
        contestant.setdefault(row["dataset"], {})[row["metric"]] = row
    compared: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    best: dict[str, float] = {}
    for name in datasets:
        for who, cells in found.items():
            if name in cells:
                metric, row = _plain_row(cells[name])
                compared.setdefault(who, {})[name] = row
                pick = min if metric == "sse" or metric_named(metric).lower else max
                best[name] = pick(best.get(name, row["mean"]), row["mean"])
    lines, bold = [], []
    for who in found:
        own = compared[who]
        counts = [row["parameters"] for row in own.values() if row["parameters"] is not None]
        span = sorted({min(counts), max(counts)}) if counts else []
        size = "–".join(f"{count:,}" for count in span) or "–"
        shown = [_CELLS[table][0](found[who][name]) if name in own else "–" for name in datasets]
        lines.append([contestant_name(*who), size, *shown])
        columns = enumerate(datasets, start=2)
        bold.append({at for at, name in columns if name in own and own[name]["mean"] == best[name]})
    return ["model", "parameters", *datasets], lines, bold


def table_row(
    entry: dict[str, Any], metric: str, values: dict[str, Any], paper: float | None
) -> dict[str, Any]:
    """A row for the command line's JSON and the ledger; for filters, images count as runs."""
    return {
        "model": entry["model"],
        "recipe": entry["recipe"],
        "dataset": entry["filter"] if "filter" in entry else entry["dataset"],
        "metric": metric,
        "mean": values["mean"],
        "ci95": values["ci95"],
        "values": values["values"],
        "runs": entry["images"] if "images" in entry else entry["runs"],
        "paper": paper,
        "parameters": entry["parameters"],
        "seconds": entry["seconds"],
    }


def with_cited(
    table: int, rows: Sequence[dict[str, Any]], *, of_all: bool = False
) -> list[dict[str, Any]]:
    """The rows and, for Table 3, the paper's figures of models that were not run, or ``of_all``.

    They are in the paper's order, for the data sets of the rows.
    """
    if table != 3:
        return list(rows)
    datasets = (*TABLE_3["specformer"], "pcqm4mv2")
    present = [name for name in datasets if any(row["dataset"] == name for row in rows)]
    run = set() if of_all else {(row["model"], row["dataset"]) for row in rows}
    cited = [
        row
        for row in _papers_rows(present)
        if (row["model"], row["dataset"]) not in run and row["model"] != "specformer"
    ]
    return sorted(
        [*rows, *cited], key=lambda row: (paper_order(row), datasets.index(row["dataset"]))
    )


def _papers_rows(datasets: Sequence[str]) -> list[dict[str, Any]]:
    """The paper's figures on these sets of many graphs, as rows."""
    found: list[tuple[str, str, float, float | None, int | None]] = [
        (model, name, *figures[name], None)
        for model, figures in TABLE_3.items()
        for name in datasets
        if name in figures
    ]
    if "pcqm4mv2" in datasets:
        found += [(model, "pcqm4mv2", mean, None, size) for model, (mean, size) in PCQM4MV2.items()]
    common = {"recipe": CITED, "runs": 0, "seconds": 0.0}
    return [
        table_row(
            {"model": model, "dataset": name, "parameters": size, **common},
            GRAPH_SETS[name].metric,
            {"mean": mean, "ci95": spread, "values": []},
            mean,
        )
        for model, name, mean, spread, size in found
    ]


def paper_order(row: dict[str, Any]) -> tuple[int, int]:
    """A key to sort rows: the model's place in the paper's tables, then the recipe."""
    place = _ORDER.index(row["model"]) if row["model"] in _ORDER else len(_ORDER)
    return place, {"authors": 1, "best": 2, "pairs": 3}.get(row["recipe"], 0)


def _column(dataset: str) -> int:
    """The place of a data set in the paper's Table 2; other data sets keep their order."""
    known = list(TABLE_2["specformer"])
    return known.index(dataset) if dataset in known else len(known)
