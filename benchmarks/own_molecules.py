r"""Models on a user's file of molecules, with three random and three scaffold test parts.

``python -m benchmarks.own_molecules rows esol.csv`` writes one set of graphs per test part; this
needs RDKit. ``python -m benchmarks.own_molecules rows`` trains on them, and saves one line per part
and model. Models are trained as ``specformer train`` does on such a file: five runs, each with its
own tenth of the molecules for validation, whose predictions are averaged. The table shows test
errors.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from benchmarks.development_suite import kept
from specformer.datasets.molecule_splits import resampled_splits
from specformer.graphs import read_molecules, write_graph_set
from specformer.tasks.job import Request, Workplace
from specformer.tasks.resolve import resolve
from specformer.tasks.train import train
from specformer.training.engine.capture import release_memory
from specformer.training.evaluation.summaries import summary
from specformer.training.runs.environment import choose_device

MODELS = ("specformer", "gin", "gps", "forest")
PROTOCOLS = {"random": "resampled", "scaffold": "resampled-scaffold"}
SEEDS = 3
_LINES = "lines.jsonl"


def write_parts(source: Path, out: Path) -> list[Path]:
    """Write a file for each test part; all other molecules are for training and validation."""
    graphs = read_molecules(source).graphs
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, protocol in PROTOCOLS.items():
        for seed in range(SEEDS):
            test = resampled_splits(graphs, protocol, 1, seed)[0].test
            others, none = np.flatnonzero(~test), np.array([], dtype=int)
            parted = replace(
                graphs, train_idx=others, valid_idx=none, test_idx=np.flatnonzero(test)
            )
            written.append(out / f"{source.stem}-{name}-{seed}.npz")
            write_graph_set(written[-1], parted)
    return written


def measured(part: Path, model: str, place: Workplace, changes: Sequence[str]) -> dict[str, Any]:
    """Train one model on one part: the test errors of the mean and of single runs."""
    request = Request(str(part), model=model, changes=tuple(changes))
    result = train(resolve(request), place, lambda: None).result
    release_memory()
    keys = ("dataset", "model", "metric", "runs", "test_together", "test", "val", "parameters")
    return {**{key: result[key] for key in keys}, "seconds": result["molecules"][0]["seconds"]}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Mean errors with 95% intervals: a row per model, a column per kind of test part."""
    lines = [f"| | {' | '.join(PROTOCOLS)} | one run: {' | one run: '.join(PROTOCOLS)} |"]
    lines.append("|---" * (1 + 2 * len(PROTOCOLS)) + "|")
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = []
        for figure in (lambda row: row["test_together"], lambda row: row["test"]["mean"]):
            for kind in PROTOCOLS:
                own = [
                    figure(row)
                    for row in rows
                    if row["model"] == model and f"-{kind}-" in row["dataset"]
                ]
                cells.append(_interval(summary(own)) if own else "–")
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _interval(found: dict[str, Any]) -> str:
    spread = found["ci95"]
    return f"{found['mean']:.3f}" + ("" if spread is None else f" ± {spread:.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the parts of a file, or train on parts that exist."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("source", type=Path, nargs="?", help="a CSV file: only write its parts")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args(arguments)
    if asked.source:
        for path in write_parts(asked.source, asked.folder):
            typer.echo(path)
        return
    lines, place = asked.folder / _LINES, Workplace(choose_device(asked.device))
    for part in sorted(asked.folder.glob("*.npz")):
        for model in asked.models.split(","):
            if (part.stem, model) not in kept(lines):
                row = measured(part, model, place, asked.set)
                with lines.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    typer.echo(table(list(kept(lines).values())))


if __name__ == "__main__":
    main()
