r"""Tables as people read them: ours beside the paper's, models down, data sets across."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specformer.errors import ConfigError
from specformer.experiments.paper import TABLE_2, TABLE_3
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
    "gin",
    "gatedgcn",
    "cin",
    "gin-ak+",
    "gsn",
    "dgn",
    "pna",
    "specgn",
    "san",
    "graphormer",
    "gps",
    "specformer",
)
#: In place of a recipe: the figure is the paper's, nothing was run.
CITED = "cited"
#: How Table 4 calls its variants, which stand in place of recipes.
_VARIANTS = {
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


@dataclass(frozen=True)
class _Style:
    """How one table's cells are written from rows by metric; ``best`` of the first metric.

    ``metric`` and ``best`` are one for the whole table, or those of each data set.
    """

    metric: str | dict[str, str]
    best: Callable[[Iterable[float]], float] | dict[str, Callable[[Iterable[float]], float]]
    cell: Callable[[dict[str, dict[str, Any]]], str]
    caption: str

    def metric_of(self, dataset: str) -> str:
        return self.metric if isinstance(self.metric, str) else self.metric[dataset]

    def best_of(self, dataset: str, figures: Iterable[float]) -> float:
        best = self.best[dataset] if isinstance(self.best, dict) else self.best
        return best(figures)


def _signal_cell(rows: dict[str, dict[str, Any]]) -> str:
    sse, r2 = rows["sse"], rows.get("r2", {"mean": None})
    return f"{error(sse['mean'])} ({r_squared(r2['mean'])}) [{error(sse['paper'])}]"


def _node_cell(rows: dict[str, dict[str, Any]]) -> str:
    by_loss, by_accuracy = rows["accuracy"], rows[by_itself("accuracy")]
    paper = by_loss["paper"]
    cited = "–" if paper is None else f"{100 * paper:.2f}"
    return f"{interval(by_loss)} ({100 * by_accuracy['mean']:.2f}) [{cited}]"


def _brief_cell(rows: dict[str, dict[str, Any]]) -> str:
    row = rows[by_itself("accuracy")]
    return interval(row) + ("" if row["paper"] is None else f" [{100 * row['paper']:.2f}]")


def _graph_cell(rows: dict[str, dict[str, Any]]) -> str:
    metric, row = next((metric, row) for metric, row in rows.items() if "-" not in metric)
    if row["recipe"] == CITED:
        return f"[{plain_interval(row)}]"
    epochs = ((by_itself(metric), ""), (at_end(metric), "end "))
    others = [f"{mark}{rows[name]['mean']:.4f}" for name, mark in epochs if name in rows]
    shown = plain_interval(row) + (f" ({', '.join(others)})" if others else "")
    cited = "–" if row["paper"] is None else f"{row['paper']:.4f}"
    return f"{shown} [{cited}]"


def _ablation_cell(rows: dict[str, dict[str, Any]]) -> str:
    return _node_cell(rows) if "accuracy" in rows else _graph_cell(rows)


_STYLES = {
    1: _Style("sse", min, _signal_cell, "Mean SSE (R²) [the paper's SSE]"),
    2: _Style(
        "accuracy",
        max,
        _node_cell,
        "Test accuracy, %, ± 95% interval at the lowest validation loss (at the highest validation "
        "accuracy) [the paper's]",
    ),
    3: _Style(
        {"zinc": "mae", "molhiv": "rocauc", "molpcba": "ap"},
        {"zinc": min, "molhiv": max, "molpcba": max},
        _graph_cell,
        "Test MAE on ZINC (lower is better), ROC-AUC on MolHIV and average precision on MolPCBA "
        "(higher is better), ± 95% interval, at the epoch that the recipe keeps (at that of the "
        "best validation metric, where it is another; end: at the last) [the paper's; a row marked "
        "cited has nothing else]",
    ),
    4: _Style(
        {"squirrel": "accuracy", "citeseer": "accuracy", "molpcba": "ap"},
        max,
        _ablation_cell,
        "Test accuracy as in Table 2, and average precision on MolPCBA as in Table 3, ± 95% "
        "interval [the paper's]",
    ),
}


#: Table 2 with one figure a cell.
_BRIEF = _Style(
    by_itself("accuracy"),
    max,
    _brief_cell,
    "Test accuracy, %, ± 95% interval at the highest validation accuracy [the paper's]",
)


def interval(row: dict[str, Any]) -> str:
    """A fraction of 1 as per cent with its 95% interval, if it has one.

    Example:
        >>> interval({"mean": 0.885, "ci95": 0.0101}), interval({"mean": 0.885, "ci95": None})
        ('88.50 ± 1.01', '88.50')
        >>> interval({"mean": 0.885, "ci95": 2.4098})  # of two runs: wider than all there can be
        '88.50 ± over 100'
    """
    mean, spread = f"{100 * row['mean']:.2f}", row["ci95"]
    if spread is None:
        return mean
    return f"{mean} ± over 100" if spread > 1.0 else f"{mean} ± {100 * spread:.2f}"


def plain_interval(row: dict[str, Any]) -> str:
    """A figure to four decimals with its 95% interval, if it has one.

    An error in the targets' units may be far from 1; then it has three digits.

    Example:
        >>> plain_interval({"mean": 0.066, "ci95": 0.003})
        '0.0660 ± 0.0030'
        >>> plain_interval({"mean": 1.5e-7, "ci95": None})
        '1.50×10⁻⁷'
    """
    mean, spread = row["mean"], row["ci95"]
    if mean != 0 and not 0.001 <= abs(mean) < 10_000:
        return error(mean) + ("" if spread is None else f" ± {error(spread, like=mean)}")
    return f"{mean:.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def caption(table: int) -> str:
    """What a cell of that table holds."""
    return _STYLES[table].caption


def contestant_name(model: str, recipe: str) -> str:
    """A model's name, with its recipe unless that is the paper's.

    Example:
        >>> contestant_name("specformer", "projected")
        'Specformer, projected'
    """
    if recipe in _VARIANTS:
        return _VARIANTS[recipe]
    plain = recipe == "paper" or (model != "specformer" and recipe not in (CITED, "best"))
    return look(model).label + ("" if plain else f", {recipe}")


def table_grid(
    table: int, rows: Sequence[dict[str, Any]]
) -> tuple[list[str], list[list[str]], list[set[int]]]:
    """Header, cells and, per row, the columns where it is the best; see :func:`caption`."""
    return _grid(_STYLES[table], rows)


def _grid(
    style: _Style, rows: Sequence[dict[str, Any]]
) -> tuple[list[str], list[list[str]], list[set[int]]]:
    datasets = sorted(dict.fromkeys(row["dataset"] for row in rows), key=_column)
    found: dict[tuple[str, str], dict[str, dict[str, dict[str, Any]]]] = {}
    for row in rows:
        contestant = found.setdefault((row["model"], row["recipe"]), {})
        contestant.setdefault(row["dataset"], {})[row["metric"]] = row
    best = {
        name: style.best_of(
            name,
            (
                cells[name][style.metric_of(name)]["mean"]
                for cells in found.values()
                if name in cells
            ),
        )
        for name in datasets
    }
    lines, bold = [], []
    for (model, recipe), cells in found.items():
        every = [
            cells[name][style.metric_of(name)]["parameters"] for name in datasets if name in cells
        ]
        counts = [count for count in every if count is not None]
        span = sorted({min(counts), max(counts)}) if counts else []
        size = "–".join(f"{count:,}" for count in span) or "–"
        line = [contestant_name(model, recipe), size]
        line += [style.cell(cells[name]) if name in cells else "–" for name in datasets]
        lines.append(line)
        bold.append(
            {
                column + 2
                for column, name in enumerate(datasets)
                if name in cells and cells[name][style.metric_of(name)]["mean"] == best[name]
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
        "values": values["values"],
        "runs": runs,
        "paper": paper,
        "parameters": entry["parameters"],
        "seconds": entry["seconds"],
    }


def with_cited(table: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows and, of Table 3, the paper's own figures for models that were not run.

    They come in the paper's order, for the data sets that something was run on.

    Example:
        >>> row = {"model": "specformer", "dataset": "zinc", "recipe": "paper"}
        >>> [cited["model"] for cited in with_cited(3, [row])[:2]]
        ['gcn', 'gin']
    """
    if table != 3:
        return list(rows)
    metrics = _STYLES[3].metric
    present = [name for name in metrics if any(row["dataset"] == name for row in rows)]
    run = {(row["model"], row["dataset"]) for row in rows}
    cited = [
        _cited_row(model, name)
        for model, figures in TABLE_3.items()
        for name in present
        if name in figures and (model, name) not in run and model != "specformer"
    ]
    places = {name: place for place, name in enumerate(metrics)}
    return sorted([*rows, *cited], key=lambda row: (paper_order(row), places[row["dataset"]]))


def _cited_row(model: str, dataset: str) -> dict[str, Any]:
    mean, spread = TABLE_3[model][dataset]
    return table_row(
        {"model": model, "recipe": CITED, "parameters": None, "seconds": 0.0},
        dataset=dataset,
        metric=_STYLES[3].metric_of(dataset),
        values={"mean": mean, "ci95": spread, "values": []},
        runs=0,
        paper=mean,
    )


def markdown_table(entries: Sequence[dict[str, Any]], *, beyond: bool = False) -> str:
    """Recorded entries as one Markdown table with a line on how they were measured.

    The data sets are the paper's or, with ``beyond``, the others.
    """
    table = entries[0]["table"]
    entries = [
        {**entry, "rows": kept}
        for entry in entries
        if (kept := [row for row in entry["rows"] if is_papers(table, row) != beyond])
    ]
    if not entries:
        raise ConfigError("no recorded row belongs in this table.")
    rows = sorted((row for entry in entries for row in entry["rows"]), key=paper_order)
    rows = with_cited(table, rows)
    grid = _markdown_grid(_STYLES[table], rows)
    return "\n".join([grid, *_provenance(entries), ""])


def brief_table_2(entries: Sequence[dict[str, Any]]) -> str:
    """Recorded entries of Table 2 with one line a model and one figure a cell.

    That of the settings found for a model on a set, where there are any; Specformer also has a line
    with the paper's.
    """
    rows = [row for entry in entries for row in entry["rows"] if is_papers(2, row)]
    if not rows:
        raise ConfigError("no recorded row belongs in this table.")
    shown: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=paper_order):  # tuned settings last, so they stay
        recipe = row["recipe"] if row["model"] == "specformer" else "default"
        cell = row["model"], recipe, row["dataset"], row["metric"]
        shown[cell] = {**row, "recipe": recipe}
    return _markdown_grid(_BRIEF, list(shown.values()))


def _markdown_grid(style: _Style, rows: Sequence[dict[str, Any]]) -> str:
    """A table, the best in bold, and a line on what its cells hold."""
    header, cells, bold = _grid(style, rows)
    lines = [_markdown_line(header), "|" + "---|" * len(header)]
    for line, strong in zip(cells, bold, strict=True):
        shown = [f"**{cell}**" if column in strong else cell for column, cell in enumerate(line)]
        lines.append(_markdown_line(shown))
    return "\n".join([*lines, "", f"{style.caption}, {_runs(rows)}; best in bold.", ""])


def _runs(rows: Sequence[dict[str, Any]]) -> str:
    counts = sorted({row["runs"] for row in rows if row["recipe"] != CITED})
    if counts == [1]:
        return "one run"
    return f"{counts[0]} to {counts[-1]} runs" if len(counts) > 1 else f"{counts[0]} runs"


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def is_papers(table: int, row: dict[str, Any]) -> bool:
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


def paper_order(row: dict[str, Any]) -> tuple[int, int]:
    """Where a row's model stands in the paper's tables, its tuned recipe last."""
    place = _ORDER.index(row["model"]) if row["model"] in _ORDER else len(_ORDER)
    return place, int(row["recipe"] == "best")


def _column(dataset: str) -> int:
    """Where a data set stands in the paper's Table 2; those of other tables keep their order."""
    known = list(TABLE_2["specformer"])
    return known.index(dataset) if dataset in known else len(known)
