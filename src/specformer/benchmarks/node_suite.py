r"""Node classification: an epoch of ours beside the plain loop and the polynomial models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from specformer.baselines import Propagation
from specformer.benchmarks.floor import Peaks, node_work
from specformer.benchmarks.measure import Contestant, Plan, Runner, bench_row, measure
from specformer.benchmarks.plain_loop import PlainTask, fit_plainly
from specformer.benchmarks.plain_node import PlainSpecformer
from specformer.datasets import Split, dense_features, make_splits, node_graph
from specformer.errors import ConfigError
from specformer.experiments.node_recipe import NodeRecipe, node_recipe
from specformer.experiments.node_run import (
    fresh_models,
    kept_spectrum,
    node_landmarks,
    node_spectrum,
    node_task,
)
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.spectrum import Spectrum
from specformer.training.node_loop import fit_nodes
from specformer.training.precision import matmul_precision
from specformer.training.progress import Progress
from specformer.training.schedule import Schedule

DATASETS = ("cora", "citeseer", "photo", "chameleon", "squirrel", "actor")
PEERS = ("gprgnn", "bernnet", "chebnetii", "jacobiconv")
RUNS = 10
#: Graphs that follow another set's recipe: Cornell5 is of Penn94's family, and the paper has that.
_LIKE = {"cornell5": "penn94"}


@dataclass(frozen=True)
class NodeCase:
    """A graph with its spectrum in the host's memory, splits and the recipe that ours follows."""

    name: str
    graph: Graph
    spectrum: Spectrum
    splits: Sequence[Split]
    recipe: NodeRecipe


def node_case(
    source: str,
    *,
    changes: Sequence[str] = (),
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    runs: int = RUNS,
) -> NodeCase:
    """A data set by name or a graph's file, with its recipe; the device decomposes it."""
    graph = node_graph(source, data)
    recipe = timed_recipe(_LIKE.get(source, source), changes)
    spectrum = node_spectrum(graph, replace(recipe, storage="float32"), device, cache).cpu()
    if not isinstance(spectrum, Spectrum):
        raise ConfigError("spectrum=density: this suite measures decomposed spectra.")
    splits = make_splits(graph, recipe.split, runs, seed=0)
    return NodeCase(graph.name, graph, spectrum, splits, recipe)


def timed_recipe(dataset: str, changes: Sequence[str] = ()) -> NodeRecipe:
    """A data set's own recipe, the paper's if it has one, with splits that any graph can have.

    Features are those of bags of words unless they are left as they are.
    """
    recipe = node_recipe(None, dataset, ["split=random-60-20-20", *changes])[1]
    return recipe if recipe.features == "none" else replace(recipe, features="rows")


def whole_features(graph: Graph, recipe: NodeRecipe) -> np.ndarray:
    """The features that every split of a case has."""
    return dense_features(graph, "none" if recipe.features == "none" else "rows")


def bench_nodes(
    sources: Sequence[str] = DATASETS,
    *,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    plan: Plan,
    peaks: Peaks,
    progress: Progress,
) -> list[dict[str, Any]]:
    """A row a graph: ours alone and ten runs together, the plain loop, the four peers."""
    rows = []
    for source in sources:
        with progress.stage(f"bench {source}", plan.repeats + 1, "round") as update:
            case = node_case(source, data=data, cache=cache, device=device)
            contestants = [
                ours(case, device),
                replace(ours(case, device, RUNS), name="ours10"),
                reference(case, device),
                *(peer(name, case, device) for name in PEERS),
            ]
            found = measure(contestants, device, plan, update)
            rows.append(bench_row(case.name, found, node_floor(case, peaks), **sizes(case)))
    return rows


def node_floor(case: NodeCase, peaks: Peaks) -> float:
    """The floor of one run's epoch, in the precision ours works in."""
    work = node_work(_fresh(case), case.graph, case.spectrum)
    return work.floor_ms(peaks, case.recipe.precision)


def sizes(case: NodeCase) -> dict[str, int]:
    """How large a case is."""
    return {
        "nodes": case.graph.num_nodes,
        "edges": case.graph.num_edges,
        "eigenpairs": case.spectrum.num_eigenpairs,
        "distinct_eigenvalues": len(case.spectrum.distinct.values),
    }


def ours(case: NodeCase, device: torch.device, runs: int = 1) -> Contestant:
    """The loop that ``specformer train`` runs, early stopping and evaluation included."""

    def build() -> Runner:
        spectrum = kept_spectrum(case.spectrum, case.recipe, device)
        task = node_task(case.graph, case.splits[:runs], case.recipe, device)
        models = fresh_models("specformer", case.recipe, case.graph, runs, seed=0)
        landmarks = node_landmarks(spectrum, case.recipe)

        def run(epochs: int) -> None:
            schedule = _endless(case.recipe.schedule, epochs)
            with matmul_precision(case.recipe.precision, device):
                fit_nodes(models, task, spectrum, schedule, landmarks=landmarks)

        return run

    captured = device.type == "cuda"
    return Contestant("ours", build, runs, longer=(3 if runs > 1 else 10) if captured else 1)


def reference(case: NodeCase, device: torch.device) -> Contestant:
    """The plain version of the same model in the plain loop."""

    def build() -> Runner:
        spectrum = case.spectrum.to(device)
        values, vectors = spectrum.eigenvalues, spectrum.eigenvectors
        x = torch.as_tensor(whole_features(case.graph, case.recipe)).to(device)
        model = PlainSpecformer.of(_fresh(case)).to(device)
        return _plain_runner(case, device, model, lambda: model(x, values, vectors))

    return Contestant("reference", build)


def peer(name: str, case: NodeCase, device: torch.device) -> Contestant:
    """A polynomial model of order 10 with sparse products, in the plain loop."""
    _, recipe = node_recipe("default", case.name, model=name)

    def build() -> Runner:
        propagation = Propagation(case.graph.adjacency, device=device)
        x = torch.as_tensor(whole_features(case.graph, recipe)).to(device)
        model = fresh_models(name, recipe, case.graph, 1, seed=0)[0].to(device)
        return _plain_runner(case, device, model, lambda: model(x, propagation))

    return Contestant(name, build)


def _plain_runner(
    case: NodeCase, device: torch.device, model: nn.Module, forward: Callable[[], Tensor]
) -> Runner:
    assert case.graph.y is not None
    task = PlainTask.of(case.graph.y, case.splits[0], device)

    def run(epochs: int) -> None:
        with matmul_precision("highest", device):
            fit_plainly(model, forward, task, _endless(case.recipe.schedule, epochs))

    return run


def _fresh(case: NodeCase) -> Specformer:
    return cast(Specformer, fresh_models("specformer", case.recipe, case.graph, 1, seed=0)[0])


def _endless(schedule: Schedule, epochs: int) -> Schedule:
    """So many epochs, whatever the validation nodes say."""
    return replace(schedule, epochs=epochs, patience=epochs + 1)
