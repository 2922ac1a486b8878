"""A set of small random graphs whose targets follow from their structure, and a task on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import torch
from tests.spectrum.many_graphs import from_networkx

from specformer import GraphSpecformer
from specformer.datasets.packed import GraphStore
from specformer.graphs import GraphSet
from specformer.spectrum import decompose_many
from specformer.training.loops.graphs import GraphTask


def small_set(count: int = 40, seed: int = 0, *, classes: bool = False) -> GraphSet:
    """Targets: bonds per node and the share of coloured nodes, or whether they are large."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(3, 9, count)
    graphs = [nx.gnp_random_graph(int(n), 0.5, seed=int(generator.integers(1e6))) for n in sizes]
    bonds = sum(graph.number_of_edges() for graph in graphs)
    colours = [generator.integers(0, 3, (len(graph), 1)) for graph in graphs]
    y = np.array(
        [
            [5.0 + 3.0 * graph.number_of_edges() / len(graph), float((colour == 1).mean())]
            for graph, colour in zip(graphs, colours, strict=True)
        ]
    )
    if classes:
        y = (y > np.median(y, axis=0)).astype(float)
    y[1, 0] = y[7, 1] = np.nan
    third = count // 4
    return from_networkx(
        graphs,
        node_feat=np.concatenate(colours),
        edge_feat=generator.integers(0, 2, (bonds, 1)),
        y=y,
        train_idx=np.arange(2 * third, count),
        valid_idx=np.arange(third),
        test_idx=np.arange(third, 2 * third),
        name="small",
    )


def three_classes(count: int = 60) -> GraphSet:
    """The same with one target: few, some or many bonds per node. That of one is unknown."""
    graphs = small_set(count)
    assert graphs.y is not None
    first = graphs.y[:, :1]
    bounds = np.nanquantile(first, (1 / 3, 2 / 3))
    return replace(graphs, y=np.where(np.isnan(first), np.nan, np.digitize(first, bounds)))


def with_numbers(graphs: GraphSet, scale: float = 1.0) -> GraphSet:
    """Two numbers a node in place of its colour: what it is, far from 0, and noise."""
    noise = np.random.default_rng(1).standard_normal(len(graphs.node_feat))
    x = np.stack([graphs.node_feat[:, 0] + 10.0, noise], axis=1)
    return replace(graphs, node_feat=None, x=scale * x)


def small_task(
    graphs: GraphSet | None = None, *, dtype: torch.dtype = torch.float64, **options: Any
) -> GraphTask:
    graphs = graphs or small_set()
    store = GraphStore.build(graphs, decompose_many(graphs))
    assert store.y is not None
    store = replace(store, y=store.y.to(dtype))
    return GraphTask(store, graphs.train_idx, graphs.valid_idx, graphs.test_idx, **options)


def small_model(
    dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any
) -> GraphSpecformer:
    torch.manual_seed(seed)
    options = {"num_layers": 2, "num_heads": 2, **options}
    return GraphSpecformer([3], [2], 8, 2, **options).to(dtype)
