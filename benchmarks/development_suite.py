r"""The recipe ``default`` of every model, on the graphs used to choose ours: three splits each.

``python -m benchmarks.development_suite`` trains, and saves one line per graph and model.
``--table`` trains nothing and prints the saved lines as the table of docs/how-to/choosing.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from specformer.files import user_cache
from specformer.tasks.job import Request, Workplace
from specformer.tasks.resolve import resolve
from specformer.tasks.train import train
from specformer.training.engine.capture import release_memory
from specformer.training.runs.environment import choose_device

GRAPHS = (
    *("cora", "citeseer", "photo", "acm", "blogcatalog", "actor", "dblp"),
    *("chameleon-filtered", "squirrel-filtered", "minesweeper", "pubmed", "cornell5"),
)
MODELS = ("specformer", "gprgnn", "gcn", "chebnetii", "gcnii", "gat", "mlp")
SPLITS = 3
KEPT = Path(__file__).parents[1] / "results" / "suite" / "development.jsonl"
_KEYS = ("dataset", "model", "metric", "form", "forms_tried", "parameters")


def measured(graph: str, model: str, place: Workplace) -> dict[str, Any]:
    """Train a model's recipe ``default``; its scores at the best validation metric."""
    began = time.perf_counter()
    request = Request(graph, model=model, recipe="default")
    trained = train(resolve(request, SPLITS), place, lambda: None)
    row, rule = trained.outcome.row, f"by_{trained.result['metric']}"
    found = {key: row[key] for key in _KEYS if key in row}
    figures = {part: row[f"{part}_{rule}"] for part in ("test", "val")}
    release_memory()
    return {**found, **figures, "seconds": time.perf_counter() - began}


def kept(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The lines of a file, by graph and model."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["dataset"], row["model"]): row for row in rows}


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Test scores in per cent, mean ranks, and each model's largest distance from the best."""
    means = {(row["dataset"], row["model"]): 100 * row["test"]["mean"] for row in rows}
    models = [model for model in MODELS if any(model == each for _, each in means)]
    graphs = [g for g in GRAPHS if sum((g, m) in means for m in models) >= len(models) - 1]
    grid = np.array([[means.get((g, m), np.nan) for m in models] for g in graphs])
    best = np.nanmax(grid, axis=1, keepdims=True)
    ranks = (grid[:, :, None] < grid[:, None, :]).sum(axis=2) + 1.0
    ranks[np.isnan(grid)] = np.nan
    lines = [f"| | {' | '.join(models)} |", "|---" * (len(models) + 1) + "|"]

    def add(name: str, values: Sequence[float], top: float) -> None:
        cells = ["–" if np.isnan(v) else f"**{v:.1f}**" if v == top else f"{v:.1f}" for v in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")

    for graph, values, top in zip(graphs, grid, best[:, 0], strict=True):
        add(graph, values, top)
    rank, behind = np.nanmean(ranks, axis=0), np.nanmax(best - grid, axis=0)
    add("mean rank", rank, rank.min())
    add("most behind the best", behind, behind.min())
    return "\n".join(lines)


def main() -> None:
    """Train and save the results, or print the saved ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=KEPT)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if not asked.table:
        place = Workplace(choose_device(asked.device), data=asked.data, cache=user_cache("spectra"))
        for graph in asked.graphs.split(","):
            for model in asked.models.split(","):
                row = measured(graph, model, place)
                rows = {**kept(asked.out), (graph, model): row}
                asked.out.parent.mkdir(parents=True, exist_ok=True)
                asked.out.write_text("".join(json.dumps(r) + "\n" for r in rows.values()))
                typer.echo(f"{graph} {model} {row.get('form', '')} {row['test']['mean']:.4f}")
    typer.echo(table(kept(asked.out).values()))


if __name__ == "__main__":
    main()
