r"""Many small graphs: a training step of ours beside the plain version, and in PyG's loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from benchmarks.floor import Peaks, graph_work
from benchmarks.plain_graph import PlainBatch, PlainGraphSpecformer
from specformer.datasets import GraphStore, graph_set, graph_split
from specformer.paper.timing.measure import (
    Candidate,
    Plan,
    Runner,
    Setting,
    bench_row,
    measure,
)
from specformer.paper.timing.timed_graphs import GraphCase, our_steps, plain_steps
from specformer.spectrum import decompose_many
from specformer.tasks.graphs.models import cardinalities
from specformer.tasks.graphs.recipe import graph_recipe

DATASETS = ("zinc",)


def graph_case(source: str, setting: Setting) -> GraphCase:
    """A data set by name or a file of graphs, with its recipe; the device decomposes it."""
    graphs = graph_set(source, setting.data)
    recipe = graph_recipe(None, source)[1].settled(graphs)
    spectra = decompose_many(
        graphs, matrix=recipe.matrix, device=setting.device, cache=setting.cache
    )
    store = GraphStore.build(graphs, spectra, "cpu")
    train = np.flatnonzero(graph_split(graphs, recipe.split, seed=0).train)
    return GraphCase(graphs.name, store, train, recipe, *cardinalities(graphs, recipe))


def bench_graphs(
    sources: Sequence[str], setting: Setting, plan: Plan, peaks: Peaks
) -> list[dict[str, Any]]:
    """One row per data set: the time of one training step."""
    rows = []
    for source in sources:
        with setting.stage(source, plan) as update:
            case = graph_case(source, setting)
            timed = (our_steps, plain_graphs, pyg_loop)
            candidates = [candidate(case, setting.device) for candidate in timed]
            found = measure(candidates, setting.device, plan, update)
            batch = case.recipe.schedule.batch_size
            rows.append(bench_row(case.name, found, graph_floor(case, peaks), batch=batch))
    return rows


def graph_floor(case: GraphCase, peaks: Peaks) -> float:
    """The floor of a step, the mean over the batches, in the precision ours works in."""
    model = case.fresh()
    floors = [
        graph_work(model, case.store.host_sizes[batch.index.numpy()]).floor_ms(
            peaks, case.recipe.precision
        )
        for batch in case.batches(case.store)
    ]
    return float(np.mean(floors))


def plain_graphs(case: GraphCase, device: torch.device) -> Candidate:
    """The plain version in the plain loop, its padded batches laid out on the device before."""

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
    """Our model in a user's loop: PyG's loader with two workers, batches joined as they come."""

    def build() -> Runner:
        order = [batch.index.tolist() for batch in case.batches(case.store)]
        graphs = {number: pyg_graph(case.store, number) for part in order for number in part}
        places = {number: place for place, number in enumerate(graphs)}
        loader = DataLoader(
            list(graphs.values()),
            batch_sampler=[[places[number] for number in part] for part in order],
            num_workers=2,
            persistent_workers=True,
            pin_memory=device.type == "cuda",
        )
        batches = chain.from_iterable(repeat(loader))
        model = case.fresh().to(device)

        def loss(_: int) -> Tensor:
            batch = next(batches).to(device, non_blocking=True)
            return case.loss(model(batch), batch.y)

        return plain_steps(case, model, loss, device)

    return Candidate("pyg", build)


def pyg_graph(store: GraphStore, number: int) -> Data:
    """A graph of a store as :class:`specformer.AddSpectrum` would leave it."""
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
