"""A program for ``torchrun``: trains on one graph, every worker on its rows, in float64."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from tests.training.seeded import seeded

from specformer import Specformer, decompose
from specformer.datasets import csbm, random_60_20_20
from specformer.spectrum.sharded import ShardedSpectrum
from specformer.training.engine.distributed import Share, Workers, torchrun_workers
from specformer.training.loops.nodes import NodeFit, NodeRuns, NodeTask, fit_nodes
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.checkpoint import Checkpoint

GRAPH = csbm(0.3, num_nodes=62, num_features=10, seed=1)
SPLITS = [random_60_20_20(GRAPH.y, seed) for seed in range(2)]
SPECTRUM = decompose(GRAPH, k=40, dtype=torch.float64)
STOPPED = "stopped.safetensors"
CPU = torch.device("cpu")
DRAWN = np.random.default_rng(0)
NUMBERS = GRAPH.x[:, :2] @ DRAWN.normal(size=(2, 2)) + DRAWN.normal(size=(62, 2))
LABELS = np.where(DRAWN.random((62, 2)) < 0.1, np.nan, NUMBERS > 0)
NOISE = DRAWN.integers(0, 2, 62)  # labels that nothing tells: validation soon gets worse

#: Targets, loss and metric, and what the model is.
CASES: dict[str, tuple[np.ndarray, str, str, dict[str, Any]]] = {
    "paper": (NOISE, "ce", "accuracy", {}),
    "deep": (GRAPH.y, "ce", "accuracy", {"form": "deep"}),
    "layers": (GRAPH.y, "ce", "f1", {"space": "hidden", "transform": True, "activation": "relu"}),
    "ranked": (LABELS, "bce", "rocauc", {"sharing": "large"}),
    "numbers": (NUMBERS, "mse", "r2", {"space": "input"}),
}


def spectrum_of(workers: Workers) -> tuple[Share, ShardedSpectrum]:
    share = Share(workers, GRAPH.num_nodes)
    values, vectors = SPECTRUM.eigenvalues, SPECTRUM.eigenvectors[share.rows]
    return share, ShardedSpectrum(values, vectors, across=share.sum, all_nodes=share.count)


def fit(
    case: str, workers: Workers, dropout: float = 0.0, checkpoint: Checkpoint | None = None
) -> tuple[NodeFit, NodeTask, ShardedSpectrum]:
    y, loss, metric, how = CASES[case]
    share, spectrum = spectrum_of(workers)
    x = sp.csr_array(GRAPH.x) if case == "paper" else GRAPH.x
    task = NodeTask.from_splits(x, y, SPLITS, CPU, loss, metric, share)  # type: ignore[arg-type]
    task = replace(task, x=task.x.to(dtype=torch.float64))
    names = ("transformer_dropout", "feature_dropout", "propagation_dropout")
    how = how | dict.fromkeys(names, dropout)
    models = seeded(lambda: Specformer(10, 8, 2, num_heads=2, **how), len(SPLITS))
    schedule = Schedule(learning_rate=0.005, epochs=30, patience=5)
    found = fit_nodes(models, task, spectrum, schedule, checkpoint=checkpoint)
    return found, task, spectrum


def results(workers: Workers, out: Path, other: Path | None) -> Iterator[tuple[str, np.ndarray]]:
    for case in CASES:
        found, task, spectrum = fit(case, workers)
        with torch.no_grad():
            outputs = task.share.whole(found.model(task.x, spectrum))
        yield f"{case} curves", found.curves.numpy()
        yield f"{case} epochs", found.epochs.numpy()
        yield f"{case} predictions", task.objective.predictions(outputs).numpy()
    # Epoch 16 is the only one that is saved: a run that stopped there, for others to go on with.
    NodeRuns.fit.__kwdefaults__["save_every"] = 16  # type: ignore[index]
    fit("deep", workers, checkpoint=Checkpoint(out / STOPPED, "test"))
    if other is not None:
        found, _, _ = fit("deep", workers, checkpoint=Checkpoint(other, "test"))
        yield "resumed", found.curves.numpy()
    found, _, _ = fit("deep", workers, dropout=0.3)
    yield "dropped", found.curves.numpy()


def main(out: Path, other: Path | None = None) -> None:
    """Every case; ``other`` is what a run of another number of workers left."""
    with torchrun_workers(CPU) as (workers, _):
        found = dict(results(workers, out, other))
        np.savez(out / f"{workers.rank}.npz", **found)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
