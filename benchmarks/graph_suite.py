r"""Many small graphs: a step of our loop, the plain version, PyG's loop and PyG's GPS.

A case is a data set, or ``SOURCE:RECIPE`` for a recipe other than the set's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddRandomWalkPE

from benchmarks.floor import Peaks, graph_work
from benchmarks.measure import Candidate, Plan, Runner, Setting, bench_row, measure
from benchmarks.plain_graph import PlainBatch, PlainGraphSpecformer
from benchmarks.plain_loop import step_plainly
from benchmarks.pyg_gps import WALK_STEPS, PyGGPS
from specformer.datasets import Batch, Batches, BatchShape, GraphStore, graph_set, graph_split
from specformer.nn import GraphSpecformer
from specformer.spectrum import decompose_many
from specformer.tasks.graphs.graph_models import cardinalities, graph_model, largest_ring
from specformer.tasks.graphs.graph_recipe import GraphRecipe, graph_recipe
from specformer.training.engine.capture import RepeatedByShape, differentiate
from specformer.training.evaluation.graph_metrics import graph_errors
from specformer.training.evaluation.graphs import Placed
from specformer.training.runs.environment import matmul_precision

#: Number of batches; after the last one, steps begin again with the first.
_BATCHES = 64


@dataclass(frozen=True)
class GraphCase:
    """Graphs in the host's memory, a recipe, and the sizes of the model.

    Args:
        name: name of the row.
        store: the graphs with spectra and targets.
        train: indices of the graphs to train on.
        recipe: a recipe whose loss is known.
        atoms, bonds: how many values each column of atoms and bonds may take.
    """

    name: str
    store: GraphStore
    train: np.ndarray
    recipe: GraphRecipe
    atoms: list[int]
    bonds: list[int]

    def batches(self, store: GraphStore) -> list[Batch]:
        """The first batches of an epoch, on the device of ``store``."""
        return Batches(store, self.train, self.recipe.schedule.batch_size).epoch(0)[:_BATCHES]

    def fresh(self) -> GraphSpecformer:
        """An untrained model, always the same."""
        torch.manual_seed(0)
        assert self.store.y is not None
        tasks = self.store.y.shape[1]
        model = graph_model("specformer", self.recipe, self.atoms, self.bonds, tasks)
        return cast(GraphSpecformer, model)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean error over the known targets."""
        assert self.recipe.loss is not None
        errors, known = graph_errors(self.recipe.loss, outputs, targets)
        return errors.sum() / known.sum().clamp_min(1)


def our_steps(case: GraphCase, device: torch.device) -> Candidate:
    """Our loop: batches are cut on the device from all data, one captured step per shape.

    The step is that of :func:`specformer.training.loops.graphs.fit_graphs`, without its validation.
    """

    def build() -> Runner:
        store = case.store.to(device)
        batches = case.batches(store)
        model = case.fresh().to(device)
        placed = Placed(model, case.recipe.precision, device)
        optimiser = case.recipe.schedule.optimiser(model.parameters(), device)
        model.train()

        def step(index: Tensor, shape: BatchShape) -> None:
            optimiser.zero_grad(set_to_none=True)
            outputs = placed(store.batch(index, shape))
            differentiate(case.loss(outputs, store.labels(index)))
            optimiser.step()

        repeated = RepeatedByShape(step, device)

        def run(steps: int) -> None:
            with matmul_precision("highest" if placed.precision == "highest" else "high", device):
                for number in range(steps):
                    batch = batches[number % len(batches)]
                    repeated(batch.index, batch.shape)

        # The second batch of a shape captures its step: do it here, not in the timed steps.
        for _ in range(2 if device.type == "cuda" else 0):
            run(len(batches))
        return run

    return Candidate("ours", build)


def plain_steps(
    case: GraphCase, model: nn.Module, loss: Callable[[int], Tensor], device: torch.device
) -> Runner:
    """Steps of the plain loop in float32."""
    schedule = case.recipe.schedule

    def run(steps: int) -> None:
        with matmul_precision("highest", device):
            step_plainly(
                model,
                loss,
                steps=steps,
                learning_rate=schedule.learning_rate,
                weight_decay=schedule.weight_decay,
            )

    return run


DATASETS = ("zinc", "zinc:best")


def graph_case(case: str, setting: Setting) -> GraphCase:
    """A data set by name or a file of graphs, with its recipe. The device computes its spectra."""
    source, _, name = case.partition(":")
    graphs = graph_set(source, setting.data)
    # Fingerprints, of files of one's own, have no part in what is measured.
    recipe = graph_recipe(name or None, source, ["model.fingerprint=0"])[1].settled(graphs)
    spectra = decompose_many(
        graphs, matrix=recipe.matrix, device=setting.device, cache=setting.cache
    )
    ring = largest_ring("specformer", recipe)
    store = GraphStore.build(graphs, spectra, "cpu", max_ring=ring)
    train = np.flatnonzero(graph_split(graphs, recipe.split, seed=0).train)
    shown = f"{graphs.name}, {name}" if name else graphs.name
    return GraphCase(shown, store, train, recipe, *cardinalities(graphs, recipe))


def bench_graphs(
    sources: Sequence[str], setting: Setting, plan: Plan, peaks: Peaks
) -> list[dict[str, Any]]:
    """One row per data set: the time of one training step."""
    rows = []
    for source in sources:
        with setting.stage(source, plan) as update:
            case = graph_case(source, setting)
            # The plain version, PyG's form of a batch and the floor are of the paper's form.
            pairs = case.fresh().config["form"] == "pairs"
            timed = (our_steps, pyg_gps) if pairs else (our_steps, plain_graphs, pyg_loop, pyg_gps)
            candidates = [candidate(case, setting.device) for candidate in timed]
            found = measure(candidates, setting.device, plan, update)
            batch, floor = (
                case.recipe.schedule.batch_size,
                None if pairs else graph_floor(case, peaks),
            )
            rows.append(bench_row(case.name, found, floor, batch=batch))
    return rows


def graph_floor(case: GraphCase, peaks: Peaks) -> float:
    """The floor of a step, as the mean over the batches, in the precision of our loop."""
    model = case.fresh()
    floors = [
        graph_work(model, case.store.host_sizes[batch.index.numpy()]).floor_ms(
            peaks, case.recipe.precision
        )
        for batch in case.batches(case.store)
    ]
    return float(np.mean(floors))


def plain_graphs(case: GraphCase, device: torch.device) -> Candidate:
    """The plain version in the plain loop; its padded batches are on the device already."""

    def build() -> Runner:
        loaded = []
        for batch in case.batches(case.store):
            packed = case.store.exact(batch.index).to(device)
            loaded.append((PlainBatch.of(packed), case.store.labels(batch.index).to(device)))
        model = PlainGraphSpecformer.of(case.fresh()).to(device)

        def loss(number: int) -> Tensor:
            batch, targets = loaded[number % len(loaded)]
            return case.loss(model(batch), targets)

        return plain_steps(case, model, loss, device)

    return Candidate("reference", build)


def pyg_loop(case: GraphCase, device: torch.device) -> Candidate:
    """Our model in a user's loop: PyG's loader with two workers makes the batches."""
    return Candidate("pyg", lambda: pyg_steps(case, case.fresh().to(device), device))


def pyg_gps(case: GraphCase, device: torch.device) -> Candidate:
    """GPS in that loop, from PyG's layers."""

    def build() -> Runner:
        torch.manual_seed(0)
        places = AddRandomWalkPE(WALK_STEPS)
        model = PyGGPS(case.atoms, case.bonds, case.fresh().readout.out_features)
        return pyg_steps(case, model.to(device), device, places)

    return Candidate("gps in pyg", build)


def pyg_steps(
    case: GraphCase,
    model: nn.Module,
    device: torch.device,
    transform: Callable[[Data], Data] = lambda graph: graph,
) -> Runner:
    """Steps of a model that takes PyG's batches of graphs, each of them transformed before."""
    order = [batch.index.tolist() for batch in case.batches(case.store)]
    numbers = dict.fromkeys(number for part in order for number in part)
    graphs = [transform(pyg_graph(case.store, number)) for number in numbers]
    places = {number: place for place, number in enumerate(numbers)}
    loader = DataLoader(
        graphs,
        batch_sampler=[[places[number] for number in part] for part in order],
        num_workers=2,
        persistent_workers=True,
        pin_memory=device.type == "cuda",
    )
    batches = chain.from_iterable(repeat(loader))

    def loss(_: int) -> Tensor:
        batch = next(batches).to(device, non_blocking=True)
        return case.loss(model(batch), batch.y)

    return plain_steps(case, model, loss, device)


def pyg_graph(store: GraphStore, number: int) -> Data:
    """A graph of a store, in the form that :class:`specformer.AddSpectrum` gives."""
    one = store.exact([number])
    n = one.max_nodes
    kinds = one.bond.view(n, n)
    ends = kinds.T.nonzero().T
    return Data(
        x=one.nodes,
        edge_index=ends,
        edge_attr=store.bond_table[kinds[ends[1], ends[0]]] - 1,
        y=store.labels(torch.tensor([number])),
        eigenvalues=one.eigenvalues,
        eigenvectors=one.eigenvectors,
        num_eigenpairs=one.sizes,
    )
