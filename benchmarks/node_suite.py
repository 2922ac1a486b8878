r"""Node classification: an epoch of our loop, the plain loop and the polynomial models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from benchmarks.floor import Peaks, node_work
from benchmarks.measure import Candidate, Plan, Runner, Setting, bench_row, measure
from benchmarks.plain_loop import PlainTask, fit_plainly
from benchmarks.plain_node import PlainSpecformer
from specformer.baselines import Propagation
from specformer.datasets import Split, dense_features, make_splits, node_graph
from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.spectrum import Spectrum
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_fit import node_landmarks
from specformer.tasks.nodes.node_recipe import NodeModel, NodeRecipe, node_recipe
from specformer.tasks.nodes.node_work import NodeWork, kept_spectrum, node_spectrum
from specformer.training.loops.nodes import fit_nodes
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.environment import matmul_precision

RUNS = 10
#: Graphs that use the recipe of another: Cornell5 is like Penn94, which is in the paper.
_LIKE = {"cornell5": "penn94"}


@dataclass(frozen=True)
class NodeCase:
    """A graph with its spectrum in the host's memory, splits, and our recipe."""

    name: str
    graph: Graph
    spectrum: Spectrum
    splits: Sequence[Split]
    recipe: NodeRecipe

    def work(self, runs: int = 1) -> NodeWork:
        """The first ``runs`` of our runs."""
        return NodeWork(self.graph, self.splits[:runs], "specformer", self.recipe, 0)

    def fresh(self) -> Specformer:
        """An untrained model, always the same."""
        return cast(Specformer, self.work().fresh_models()[0])


def node_case(
    source: str,
    setting: Setting,
    *,
    changes: Sequence[str] = (),
    runs: int = RUNS,
    name: str | None = None,
) -> NodeCase:
    """A data set by name or a file of a graph, with its recipe. The device decomposes it."""
    graph = node_graph(source, setting.data)
    recipe = timed_recipe(_LIKE.get(source, source), changes, name)
    exact = replace(recipe, storage="float32")
    spectrum = node_spectrum(graph, exact, Workplace(setting.device, cache=setting.cache)).cpu()
    if not isinstance(spectrum, Spectrum):
        raise ConfigError("spectrum=density: only decomposed spectra are timed.")
    splits = make_splits(graph, recipe.split, runs, seed=0)
    return NodeCase(graph.name, graph, spectrum, splits, recipe)


def timed_recipe(dataset: str, changes: Sequence[str] = (), name: str | None = None) -> NodeRecipe:
    """The recipe ``name``, by default the paper's if there is one, with splits for any graph.

    Rows of features are divided by their sum, unless the recipe leaves features unchanged.
    """
    recipe = node_recipe(name, dataset, ["split=random-60-20-20", *changes])[1]
    return recipe if recipe.features == "none" else replace(recipe, features="rows")


def whole_features(graph: Graph, recipe: NodeRecipe) -> np.ndarray:
    """The features, which are the same for every split."""
    return dense_features(graph, "none" if recipe.features == "none" else "rows")


def our_epochs(case: NodeCase, device: torch.device, runs: int = 1) -> Candidate:
    """The loop of ``specformer train``, with early stopping and evaluation."""

    def build() -> Runner:
        spectrum = kept_spectrum(case.spectrum, case.recipe, device)
        work = case.work(runs)
        task, models = work.task(device), work.fresh_models()
        landmarks = node_landmarks(spectrum, case.recipe)

        def run(epochs: int) -> None:
            schedule = _endless(case.recipe.schedule, epochs)
            with matmul_precision(case.recipe.precision, device):
                fit_nodes(models, task, spectrum, schedule, landmarks=landmarks)

        return run

    captured = device.type == "cuda"
    return Candidate("ours", build, runs, longer=(3 if runs > 1 else 10) if captured else 1)


def peer_epochs(name: str, case: NodeCase, device: torch.device) -> Candidate:
    """A polynomial model of order 10 with sparse products, in the plain loop."""
    _, recipe = node_recipe("default", case.name, model=name)

    def build() -> Runner:
        propagation = Propagation(case.graph.adjacency, device=device)
        x = torch.as_tensor(whole_features(case.graph, recipe)).to(device)
        work = replace(case.work(), model=name, recipe=recipe)
        model = work.fresh_models()[0].to(device)
        return plain_epochs(case, device, model, lambda: model(x, propagation))

    return Candidate(name, build)


def plain_epochs(
    case: NodeCase, device: torch.device, model: nn.Module, forward: Callable[[], Tensor]
) -> Runner:
    """Epochs of the plain loop on the first split, in float32."""
    assert case.graph.y is not None
    task = PlainTask.of(case.graph.y, case.splits[0], device)

    def run(epochs: int) -> None:
        with matmul_precision("highest", device):
            fit_plainly(model, forward, task, _endless(case.recipe.schedule, epochs))

    return run


def _endless(schedule: Schedule, epochs: int) -> Schedule:
    """A schedule of exactly ``epochs`` epochs, without early stopping."""
    return replace(schedule, epochs=epochs, patience=epochs + 1)


DATASETS = ("cora", "citeseer", "photo", "chameleon", "squirrel", "actor")
PEERS = ("gprgnn", "bernnet", "chebnetii", "jacobiconv")


def bench_nodes(
    sources: Sequence[str], setting: Setting, plan: Plan, peaks: Peaks
) -> list[dict[str, Any]]:
    """One row per graph: one of our runs, ten of them together, the plain loop, four peers."""
    rows, device = [], setting.device
    for source in sources:
        with setting.stage(source, plan) as update:
            case = node_case(source, setting)
            candidates = [
                our_epochs(case, device),
                replace(our_epochs(case, device, RUNS), name="ours10"),
                plain_nodes(case, device),
                *(peer_epochs(name, case, device) for name in PEERS),
            ]
            found = measure(candidates, device, plan, update)
            rows.append(bench_row(case.name, found, node_floor(case, peaks), **sizes(case)))
    return rows


def node_floor(case: NodeCase, peaks: Peaks) -> float:
    """The floor of one run's epoch, in the precision of our loop."""
    work = node_work(case.fresh(), case.graph, case.spectrum)
    return work.floor_ms(peaks, case.recipe.precision)


def sizes(case: NodeCase) -> dict[str, int]:
    """The sizes of a case, as entries of its row."""
    return {
        "nodes": case.graph.num_nodes,
        "edges": case.graph.num_edges,
        "eigenpairs": case.spectrum.num_eigenpairs,
        "distinct_eigenvalues": len(case.spectrum.distinct.values),
    }


def plain_nodes(case: NodeCase, device: torch.device) -> Candidate:
    """The plain version of the same model in the plain loop."""

    def build() -> Runner:
        spectrum = case.spectrum.to(device)
        values, vectors = spectrum.eigenvalues, spectrum.eigenvectors
        x = torch.as_tensor(whole_features(case.graph, case.recipe)).to(device)
        model = PlainSpecformer.of(case.fresh()).to(device)
        return plain_epochs(case, device, model, lambda: model(x, values, vectors))

    return Candidate("reference", build)


DEEP_DATASETS = ("photo", "minesweeper")


class DeepGCN(nn.Module):
    """PyG's convolutions in the blocks of our deep form: a linear residual, norm, dropout."""

    def __init__(self, in_channels: int, config: NodeModel, out_channels: int) -> None:
        super().__init__()
        width = config.hidden_channels
        self.first, self.last = nn.Linear(in_channels, width), nn.Linear(width, out_channels)
        self.blocks = nn.ModuleList(
            nn.ModuleList([GCNConv(width, width), nn.Linear(width, width), nn.BatchNorm1d(width)])
            for _ in range(config.num_layers)
        )
        self.dropout = nn.Dropout(config.propagation_dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.first(x)
        for block in self.blocks:
            conv, skip, norm = cast(nn.ModuleList, block)
            hidden = self.dropout(norm(conv(hidden, edge_index) + skip(hidden)).relu())
        return cast(Tensor, self.last(hidden))


def deep_gcn(case: NodeCase, device: torch.device) -> Candidate:
    """A GCN as deep and wide as our deep form, in the plain loop."""

    def build() -> Runner:
        edges = np.stack(case.graph.adjacency.nonzero())
        edge_index = torch.as_tensor(edges, dtype=torch.long).to(device)
        x = torch.as_tensor(whole_features(case.graph, case.recipe)).to(device)
        model = DeepGCN(x.shape[1], case.recipe.model, case.graph.num_classes).to(device)
        return plain_epochs(case, device, model, lambda: model(x, edge_index))

    return Candidate("pyg gcn", build)


def bench_deep(
    sources: Sequence[str], setting: Setting, plan: Plan, peaks: Peaks
) -> list[dict[str, Any]]:
    """One row per graph: our deep form with eight blocks, and an equally large GCN of PyG."""
    del peaks  # the floor of the deep form is not known
    rows, device = [], setting.device
    for source in sources:
        with setting.stage(source, plan) as update:
            case = node_case(source, setting, changes=["form=deep-8"], name="default")
            ten = replace(our_epochs(case, device, RUNS), name="ours10")
            candidates = [our_epochs(case, device), ten, deep_gcn(case, device)]
            found = measure(candidates, device, plan, update)
            rows.append(bench_row(f"deep {case.name}", found, None, **sizes(case)))
    return rows
