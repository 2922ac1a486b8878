"""Train on nodes with raw columns; compare with features prepared by hand and a random forest.

It takes half a minute on one core. ``python examples/train_on_a_table.py 10`` trains on ten splits;
five is the default. The graph is generated: 300 nodes of three classes; two of three edges are
inside a class. The table ``numbers`` has the columns age, income and score. The table ``mixed``
also has words, truth values and dates, and one cell in ten is missing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier

import specformer as sf
from specformer.datasets import make_splits
from specformer.graphs import Graph, write_npz
from specformer.tasks.job import Request, Workplace
from specformer.tasks.resolve import resolve
from specformer.tasks.train import train

NODES, CLASSES = 300, 3
RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
#: One form of the recipe, trained briefly.
QUICK = ("form=paper", "schedule.epochs=200")


def write_table(folder: Path, mixed: bool, seed: int = 0) -> None:
    """Write a folder with edges.csv and nodes.csv."""
    rng = np.random.default_rng(seed)
    label = rng.integers(CLASSES, size=NODES)
    age = rng.normal(30 + 12 * label, 6)
    income = np.exp(rng.normal(10 + 0.8 * (label == 1), 0.5))
    score = rng.normal(0.5 - 0.25 * (label == 2), 0.1)
    columns = {"age": age.round(1), "income": income.round(), "score": score.round(3)}
    if mixed:
        city = np.where(rng.random(NODES) < 0.6, label, rng.integers(CLASSES, size=NODES))
        columns["city"] = np.array(["Graz", "Linz", "Wels"])[city]
        member = np.where(rng.random(NODES) < 0.8, label == 0, label != 0)
        columns["member"] = np.where(member, "yes", "no")
        joined = np.datetime64("2015-01-01") + (rng.normal(900 * label, 400)).astype(int)
        columns["joined"] = joined
    cells = {name: values.astype(str) for name, values in columns.items()}
    if mixed:
        for values in cells.values():
            values[rng.random(NODES) < 0.1] = ""
    table = [["id", *cells, "label"]]
    table += [
        [f"n{i}", *(values[i] for values in cells.values()), f"class {label[i]}"]
        for i in range(NODES)
    ]
    ends = rng.integers(NODES, size=(2, 12 * NODES))
    same = label[ends[0]] == label[ends[1]]
    kept = ends[:, (ends[0] != ends[1]) & (rng.random(ends.shape[1]) < np.where(same, 0.4, 0.1))]
    folder.mkdir()
    edges = [["source", "target"], *([f"n{i}", f"n{j}"] for i, j in kept.T)]
    for name, rows in (("nodes.csv", table), ("edges.csv", edges)):
        (folder / name).write_text("".join(",".join(row) + "\n" for row in rows))


def by_hand(graph: Graph) -> Graph:
    """Prepare features by hand: standardise numbers, encode words one-hot, fill gaps with means."""
    columns = []
    for place, name in enumerate(graph.feature_names):
        values = graph.x[:, place].astype(float)
        missing = np.isnan(values)
        words = (graph.feature_words or {}).get(name)
        if words is not None:
            columns += [values == number for number in range(len(words))]
        else:
            filled = np.where(missing, np.nanmean(values), values)
            columns.append((filled - filled.mean()) / filled.std())
        if missing.any():
            columns.append(missing)
    x = np.stack(columns, axis=1).astype(np.float32)
    return Graph(graph.adjacency, x=x, y=graph.y, name=graph.name)


def forest(graph: Graph) -> list[float]:
    """Accuracies of a random forest on the same columns, all as numbers."""
    x = np.nan_to_num(graph.x, nan=-1.0)
    found = []
    for split in make_splits(graph, "auto", RUNS, seed=0):
        trees = RandomForestClassifier(n_estimators=300, random_state=0)
        trees.fit(x[split.train], graph.y[split.train])
        found.append(trees.score(x[split.test], graph.y[split.test]))
    return found


def specformer(source: Path, *changes: str) -> list[float]:
    """Accuracies of the recipe ``default``, one per split."""
    job = resolve(Request(str(source), changes=(*QUICK, *changes)), RUNS)
    return train(job, Workplace(torch.device("cpu"))).result["test"]["values"]


def main() -> None:
    for mixed in (False, True):
        folder = Path(tempfile.mkdtemp()) / ("mixed" if mixed else "numbers")
        write_table(folder, mixed)
        graph = sf.read_graph(folder)
        write_npz(folder / "by-hand.npz", by_hand(graph))
        rows = {
            "specformer, default": specformer(folder),
            "specformer, prepared by hand": specformer(folder / "by-hand.npz", "features=none"),
            "random forest, no edges": forest(graph),
        }
        if not mixed:
            rows["specformer, features=rows"] = specformer(folder, "features=rows")
        for name, values in rows.items():
            print(f"{folder.name:8} {name:30} {100 * np.mean(values):5.1f}")


if __name__ == "__main__":
    main()
