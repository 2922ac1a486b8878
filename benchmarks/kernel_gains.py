r"""What each Triton kernel gains: time a training step with all kernels, then without each one.

    python benchmarks/kernel_gains.py --data DIR

Every case is a training step of ``specformer train``, with the paper's recipe and batch size: an
epoch on one graph, or one batch of molecules. The script watches which kernels a case launches. The
table has one row per kernel and one column per case. An entry is the share of the step's time that
the kernel saves, (off - on) / off in percent; it is empty if the case does not use the kernel.
Without a GPU no kernels run, and the script only shows the times of the cases.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specformer import kernels
from specformer.baselines import Propagation
from specformer.datasets import (
    Batches,
    BatchShape,
    GraphStore,
    graph_set,
    graph_split,
    make_splits,
    node_graph,
)
from specformer.graphs import GraphSet
from specformer.spectrum import Spectrum, decompose_many
from specformer.tasks.graphs.graph_models import cardinalities, graph_model
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_fit import node_landmarks
from specformer.tasks.nodes.node_recipe import node_recipe
from specformer.tasks.nodes.node_work import NodeWork, kept_spectrum, node_spectrum
from specformer.training.engine.capture import RepeatedByShape, differentiate
from specformer.training.evaluation.graph_metrics import graph_errors
from specformer.training.evaluation.graphs import Placed
from specformer.training.loops.nodes import fit_nodes
from specformer.training.runs.environment import matmul_precision

NODES = ("cora", "squirrel", "actor")
GRAPHS = ("zinc", "molhiv", "molpcba")
#: A case for attention with distances, a kernel that only the baseline Graphormer uses.
BASELINE = "cora-graphormer"

#: Takes the given number of training steps.
Runner = Callable[[int], None]


@dataclass(frozen=True)
class GainPlan:
    """How much is measured.

    Args:
        steps: steps timed in each repeat.
        repeats: repeats of every measurement; the median counts.
        batches: number of different batches of a case with molecules.
        epochs: on one graph, epochs per step, because epochs are short.
    """

    steps: int
    repeats: int
    batches: int
    epochs: int


@dataclass(frozen=True)
class Case:
    """A training step.

    Args:
        name: name of the column.
        build: makes a model, and returns the function that trains it.
        warmup: steps at the start of every run that do not count: setup and capture.
        steps: steps that count.
    """

    name: str
    build: Callable[[], Runner]
    warmup: int
    steps: int


# --- cases ---------------------------------------------------------------------------------------


def node_case(name: str, data: Path, device: torch.device, plan: GainPlan) -> Case:
    """Ten splits of one graph that train together; a step is an epoch with its evaluation."""
    dataset, _, model = name.partition("-")
    model = model or "specformer"
    graph = node_graph(dataset, data)
    _, recipe = node_recipe(None, dataset, ["split=random-60-20-20"], model)
    splits = make_splits(graph, recipe.split, 1 if model == "graphormer" else 10, seed=0)
    work = NodeWork(graph, splits, model, recipe, 0)
    task = work.task(device)
    operator: object = Propagation(graph.adjacency, device=device)
    landmarks = None
    if model == "specformer":
        spectrum = node_spectrum(graph, recipe, Workplace(device))
        assert isinstance(spectrum, Spectrum)
        operator = spectrum = kept_spectrum(spectrum, recipe, device)
        landmarks = node_landmarks(spectrum, recipe)

    def build() -> Runner:
        models = work.fresh_models()

        def run(epochs: int) -> None:
            schedule = replace(recipe.schedule, epochs=epochs, patience=epochs + 1)
            with matmul_precision(recipe.precision, device):
                fit_nodes(models, task, operator, schedule, landmarks=landmarks)

        return run

    # The first three epochs are eager, the fourth is captured.
    return Case(name, build, warmup=10, steps=plan.steps * plan.epochs)


def graph_case(name: str, data: Path, device: torch.device, plan: GainPlan) -> Case:
    """A step is a batch of the paper's size; only the graphs of a few batches are read."""
    graphs = graph_set(name, data)
    recipe = graph_recipe(None, name)[1].settled(graphs)
    atoms, bonds = cardinalities(graphs, recipe)
    size = recipe.schedule.batch_size
    train = np.flatnonzero(graph_split(graphs, recipe.split, seed=0).train)
    some: GraphSet = graphs.subset(np.sort(train[: size * plan.batches]))
    assert some.y is not None
    spectra = decompose_many(some, matrix=recipe.matrix, device=device)
    store = GraphStore.build(some, spectra, "cpu").to(device)
    batches = Batches(store, np.arange(len(some)), size).epoch(0)[: plan.batches]
    loss_kind = recipe.loss
    assert loss_kind is not None
    tasks = some.y.shape[1]

    def build() -> Runner:
        torch.manual_seed(0)
        model = graph_model("specformer", recipe, atoms, bonds, tasks).to(device).train()
        placed = Placed(model, recipe.precision, device)
        optimiser = recipe.schedule.optimiser(model.parameters(), device)

        def step(index: Tensor, shape: BatchShape) -> None:
            optimiser.zero_grad(set_to_none=True)
            outputs = placed(store.batch(index, shape))
            errors, known = graph_errors(loss_kind, outputs, store.labels(index))
            differentiate(errors.sum() / known.sum().clamp_min(1))
            optimiser.step()

        repeated = RepeatedByShape(step, device)

        def run(steps: int) -> None:
            with matmul_precision("highest" if placed.precision == "highest" else "high", device):
                for number in range(steps):
                    batch = batches[number % len(batches)]
                    repeated(batch.index, batch.shape)

        run(3 * len(batches))  # the second batch of a shape captures its step
        return run

    return Case(name, build, warmup=0, steps=plan.steps)


# --- measurement ---------------------------------------------------------------------------------


@contextmanager
def watched() -> Iterator[set[str]]:
    """Collect the names of the kernels that are launched inside."""
    asked, real = set[str](), kernels.runs_on

    def runs_on(device: torch.device, kernel: str) -> bool:
        answer = real(device, kernel)
        if answer:
            asked.add(kernel)
        return answer

    # Some modules imported the function by name.
    holders = [each for each in list(sys.modules.values()) if getattr(each, "runs_on", 0) is real]
    for holder in holders:
        holder.runs_on = runs_on  # type: ignore[attr-defined]
    try:
        yield asked
    finally:
        for holder in holders:
            holder.runs_on = real  # type: ignore[attr-defined]


@contextmanager
def without(kernel: str) -> Iterator[None]:
    """Switch one kernel off."""
    kernels.OFF.add(kernel)
    try:
        yield
    finally:
        kernels.OFF.discard(kernel)


def seconds(run: Runner, steps: int, device: torch.device) -> float:
    """The time of ``steps`` steps."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    run(steps)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def milliseconds(case: Case, device: torch.device, repeats: int) -> float:
    """The median time of a step, without setup and capture."""
    run = case.build()
    short = 0.0
    if case.warmup:
        run(case.warmup)
        short = seconds(run, case.warmup, device)
    times = [seconds(run, case.warmup + case.steps, device) - short for _ in range(repeats)]
    return 1e3 * statistics.median(times) / case.steps


def measured(case: Case, device: torch.device, repeats: int) -> dict[str, float]:
    """Milliseconds of a step with all kernels (key ``""``), and without each used kernel."""
    with watched() as used:
        before = milliseconds(case, device, repeats)
    found = {}
    for kernel in sorted(used):
        with without(kernel):
            found[kernel] = milliseconds(case, device, repeats)
    # Measure again at the end: the machine may have become faster or slower.
    after = milliseconds(case, device, repeats)
    return {"": (before + after) / 2, **found}


def table(times: dict[str, dict[str, float]]) -> str:
    """Milliseconds of a step, then gains in percent: a row per kernel, a column per case."""
    names = sorted({kernel for found in times.values() for kernel in found if kernel})
    lines = [["kernel", *times], ["ms per step", *(f"{found['']:.3f}" for found in times.values())]]
    for kernel in names:
        row = [kernel]
        for found in times.values():
            if kernel in found:
                row.append(f"{100 * (found[kernel] - found['']) / found[kernel]:.1f} %")
            else:
                row.append("")
        lines.append(row)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) if place == 0 else text.rjust(width)
                  for place, (text, width) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )  # fmt: skip


def main() -> None:
    """Measure one case after another; print each when it is known, and all at the end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the npz files")
    parser.add_argument("--cases", default=",".join((*NODES, BASELINE, *GRAPHS)))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=40, help="steps timed in each repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--batches", type=int, default=8, help="number of different batches of molecules"
    )
    parser.add_argument("--json", type=Path, help="also write the milliseconds to this file")
    options = parser.parse_args()
    device = torch.device(options.device)
    epochs = 5 if device.type == "cuda" else 1
    plan = GainPlan(options.steps, options.repeats, options.batches, epochs)
    times: dict[str, dict[str, float]] = {}
    for name in options.cases.split(","):
        start = time.perf_counter()
        make = graph_case if name in GRAPHS else node_case
        times[name] = measured(make(name, options.data, device, plan), device, plan.repeats)
        took = f"{time.perf_counter() - start:.0f} s"
        sys.stderr.write(f"{table({name: times[name]})}\n({took})\n\n")
        if options.json:
            options.json.write_text(json.dumps(times, indent=1))
    sys.stdout.write(table(times) + "\n")


if __name__ == "__main__":
    main()
