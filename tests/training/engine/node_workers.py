"""A program for ``torchrun``: trains on one graph, every worker on its rows, in float64."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from tests.datasets.test_parts import write_parts, write_tables
from tests.training.seeded import seeded

from specformer import ImplicitSpectrum, Specformer, approximate, decompose
from specformer.datasets import csbm, random_60_20_20
from specformer.datasets import parts as parts_module
from specformer.datasets.parts import GraphPart, read_parts
from specformer.graphs import Graph
from specformer.spectrum.cache import content
from specformer.spectrum.implicit.polynomial import chebyshev_terms
from specformer.spectrum.sharded import ShardedSpectrum, approximate_rows
from specformer.training.engine.distributed import Share, Workers, torchrun_workers
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.node_batches import fit_node_batches
from specformer.training.loops.nodes import NodeFit, NodeRuns, fit_nodes
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
    case: str,
    workers: Workers,
    dropout: float = 0.0,
    checkpoint: Checkpoint | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[NodeFit, NodeTask, ShardedSpectrum]:
    y, loss, metric, how = CASES[case]
    share, spectrum = spectrum_of(workers)
    x = sp.csr_array(GRAPH.x) if case == "paper" else GRAPH.x
    task = NodeTask.from_splits(x, y, SPLITS, CPU, loss, metric, share)  # type: ignore[arg-type]
    task, spectrum = replace(task, x=task.x.to(dtype=dtype)), spectrum.to(dtype)
    names = ("transformer_dropout", "feature_dropout", "propagation_dropout")
    how = how | dict.fromkeys(names, dropout)
    models = seeded(lambda: Specformer(10, 8, 2, num_heads=2, **how), len(SPLITS))
    models = [model.to(dtype) for model in models]
    schedule = Schedule(learning_rate=0.005, epochs=30, patience=5)
    found = fit_nodes(models, task, spectrum, schedule, checkpoint=checkpoint)
    return found, task, spectrum


def fit_without_vectors(
    workers: Workers, batch_size: int | None, dropout: float = 0.0, part: Graph | None = None
) -> tuple[NodeFit, NodeTask, ImplicitSpectrum]:
    """On the density alone, with all nodes in a step or in batches; ``part``: what was read."""
    share = Share(workers, GRAPH.num_nodes)
    rows = GRAPH.adjacency[share.rows] if part is None else part.adjacency
    x, y = (GRAPH.x, GRAPH.y) if part is None else (part.x, part.y)
    how: dict[str, Any] = {"degree": 12, "probes": 3, "steps": 20, "dtype": torch.float64}
    if workers.size > 1:
        spectrum = approximate_rows(sp.csr_array(rows), share, **how)
    else:
        spectrum = approximate(rows, **how)
    task = NodeTask.from_splits(x, y, SPLITS, CPU, share=share)
    task = replace(task, x=task.x.to(dtype=torch.float64))
    form: dict[str, Any] = {"form": "deep"} if batch_size is None else {"space": "input"}
    form |= {"transformer_dropout": dropout, "feature_dropout": dropout, "propagation_dropout": 0.0}
    models = seeded(lambda: Specformer(10, 8, 2, num_heads=2, **form), len(SPLITS))
    schedule = Schedule(learning_rate=0.005, epochs=12)
    if batch_size is None:
        return fit_nodes(models, task, spectrum, schedule), task, spectrum
    assert isinstance(task.x, torch.Tensor)
    terms = chebyshev_terms(spectrum, task.x, batch_size, storage=torch.float64)
    found = fit_node_batches(models, task, terms, schedule, batch_size=batch_size)
    return found, task, spectrum


def results(workers: Workers, out: Path, other: Path | None) -> Iterator[tuple[str, np.ndarray]]:
    for case in CASES:
        found, task, spectrum = fit(case, workers)
        with torch.no_grad():
            outputs = task.share.whole(found.model(task.x, spectrum))
        yield f"{case} curves", found.curves.numpy()
        yield f"{case} epochs", found.epochs.numpy()
        yield f"{case} predictions", task.predictions(outputs).numpy()
    for size in (None, 4):  # batches so small that some have no node of a worker
        found, task, implicit = fit_without_vectors(workers, size)
        with torch.no_grad():
            outputs = task.share.whole(found.model(task.x, implicit))
        yield f"batches of {size} curves", found.curves.numpy()
        yield f"batches of {size} predictions", outputs.numpy()
        yield f"batches of {size} tokens", torch.stack([*implicit.tokens]).numpy()
    found, _, _ = fit_without_vectors(workers, 4, dropout=0.3)
    yield "dropped batches", found.curves.numpy()
    with workers.first_before_others():
        if workers.is_first:
            write_parts(out / "parts", weighted=True)
            write_tables(out / "tables", weighted=True)
    for name in ("parts", "tables"):
        yield from in_parts(name, out / name, workers)
    # Epoch 16 is the only one that is saved: a run that stopped there, for others to go on with.
    NodeRuns.fit.__kwdefaults__["save_every"] = 16  # type: ignore[index]
    fit("deep", workers, checkpoint=Checkpoint(out / STOPPED, "test"))
    if other is not None:
        found, _, _ = fit("deep", workers, checkpoint=Checkpoint(other, "test"))
        yield "resumed", found.curves.numpy()
    found, _, spectrum = fit("deep", workers, dropout=0.3)
    yield "dropped", found.curves.numpy()
    with torch.no_grad():
        yield "dropped filters", torch.stack(found.model.train().responses(spectrum)).numpy()
    found, _, _ = fit("deep", workers, dtype=torch.float32)
    yield "deep in float32", found.curves.numpy()


def in_parts(name: str, folder: Path, workers: Workers) -> Iterator[tuple[str, np.ndarray]]:
    """What workers read of a graph in parts, its content, and training on it."""
    share, read = Share(workers, 62), []
    usual = parts_module._arrays

    def noting(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
        if "x" in names:
            read.append(path.stem)
        return usual(path, names)

    parts_module._arrays = noting
    own = read_parts(folder, partial(Share, workers))
    parts_module._arrays = usual
    if name == "parts":  # three files for 62 nodes: no worker reads features of others' files
        first, last, _ = share.rows.indices(62)
        assert read == [f"part-{each}" for each in range(first * 3 // 62, (last * 3 - 1) // 62 + 1)]
    rows = torch.as_tensor(np.column_stack([own.adjacency.toarray(), own.x]))
    yield name, share.whole(rows).numpy()
    told = own.content if isinstance(own, GraphPart) else content(own.adjacency)
    yield f"{name}: hashes", np.array([told, own.fingerprint])
    found, _, _ = fit_without_vectors(workers, None, part=own)
    yield f"{name}: curves", found.curves.numpy()


def main(out: Path, other: Path | None = None) -> None:
    """Every case; ``other`` is what a run of another number of workers left."""
    with torchrun_workers(CPU) as (workers, _):
        found = dict(results(workers, out, other))
        np.savez(out / f"{workers.rank}.npz", **found)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
