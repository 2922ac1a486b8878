r"""The paper's tables of time and space overheads: 1000 epochs on three sets, width 64.

Milliseconds per epoch equal seconds per 1000 epochs, the paper's unit. Penn94 is not shipped, so a
random graph of the same size is used: as many nodes, edges and features, and similar degrees. Its
6,000 eigenpairs are random numbers too: times do not depend on their values.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from benchmarks.floor import Peaks
from benchmarks.graph_suite import GraphCase, graph_floor, our_steps, plain_graphs, plain_steps
from benchmarks.measure import Candidate, Plan, Runner, Setting, bench_row, measure
from benchmarks.node_suite import (
    NodeCase,
    node_case,
    node_floor,
    our_epochs,
    peer_epochs,
    plain_nodes,
    timed_recipe,
)
from benchmarks.sized_graph import NAME, GraphSizes, sized_graph
from specformer.baselines import BASELINES, Propagation
from specformer.datasets import GraphStore, graph_set, make_splits
from specformer.errors import ConfigError
from specformer.graphs import Graph, GraphSet
from specformer.graphs.graph_set import starts
from specformer.paper.published import OVERHEAD
from specformer.spectrum import ManySpectra, Spectrum, decompose, decompose_many
from specformer.tasks.graphs.graph_recipe import graph_recipe

DATASETS = ("squirrel", NAME, "zinc-2k")
PEERS = ("gprgnn", "bernnet")
WIDTH = 64
_MOLECULES = 2000

#: A case, its candidates, and the seconds of its decomposition, if measured.
_Prepared = tuple[NodeCase | GraphCase, list[Candidate], float | None]


def bench_overhead(
    names: Sequence[str], setting: Setting, plan: Plan, peaks: Peaks
) -> list[dict[str, Any]]:
    """One row per data set: our loop, the plain version, two peers, floor and decomposition.

    Each row also has the paper's numbers.
    """
    for name in names:
        if name not in DATASETS:
            raise ConfigError(f"--datasets {name}: the overhead tables have {', '.join(DATASETS)}.")
    rows = []
    for name in names:
        with setting.stage(name, plan) as update:
            prepared = _molecules(setting) if name == "zinc-2k" else _nodes(name, setting)
            case, candidates, solving = prepared
            if isinstance(case, NodeCase):
                plain, floor = plain_nodes(case, setting.device), node_floor(case, peaks)
            else:
                plain, floor = plain_graphs(case, setting.device), graph_floor(case, peaks)
            found = measure([*candidates, plain], setting.device, plan, update)
            row = bench_row(name, found, floor, decomposition_seconds=solving, paper=OVERHEAD[name])
            rows.append(row)
    return rows


def _nodes(name: str, setting: Setting) -> _Prepared:
    device, solving = setting.device, None
    if name == "squirrel":
        changes = [f"model.hidden_channels={WIDTH}"]
        case = node_case(name, setting, changes=changes)
        solving = decomposition_seconds(case.graph, device)
    else:
        case = sized_case(GraphSizes())
    peers = (peer_epochs(peer, case, device) for peer in PEERS)
    return case, [our_epochs(case, device), *peers], solving


def decomposition_seconds(graph: Graph, device: torch.device) -> float:
    """Seconds of a complete decomposition, the second of two."""
    for _ in range(2):
        began = time.perf_counter()
        decompose(graph, device=device)
        took = time.perf_counter() - began
    return took


def sized_case(sizes: GraphSizes) -> NodeCase:
    """A graph of given sizes, with random numbers in place of its eigenpairs."""
    graph = sized_graph(sizes)
    recipe = timed_recipe("penn94")
    generator = torch.Generator().manual_seed(0)
    values = torch.linspace(0, 2, sizes.pairs)
    vectors = torch.randn(sizes.nodes, sizes.pairs, generator=generator) / sizes.nodes**0.5
    splits = make_splits(graph, recipe.split, 1, seed=0)
    return NodeCase(graph.name, graph, Spectrum(values, vectors), splits, recipe)


def _molecules(setting: Setting) -> _Prepared:
    graphs = graph_set("zinc", setting.data)
    graphs = graphs.subset(np.arange(min(_MOLECULES, len(graphs))))
    began = time.perf_counter()
    spectra = decompose_many(graphs, device=setting.device)
    solving = time.perf_counter() - began
    case = bondless_case(graphs, spectra)
    peers = (polynomial(peer, case, graphs, setting.device) for peer in PEERS)
    return case, [our_steps(case, setting.device), *peers], solving


def bondless_case(graphs: GraphSet, spectra: ManySpectra) -> GraphCase:
    """All graphs as one batch, one convolution of width 64, bonds of one kind.

    As in the paper: polynomial models do not know kinds of bonds, and one filter that reaches every
    node is compared with one polynomial.
    """
    kinds = np.zeros((graphs.edge_index.shape[1], 1), dtype=np.int64)
    store = GraphStore.build(replace(graphs, edge_feat=kinds), spectra, "cpu")
    changes = [f"model.hidden_channels={WIDTH}", "model.num_layers=1"]
    changes += ["model.transformer_dropout=0.0", "model.feature_dropout=0.0", "atoms=null"]
    changes += [f"schedule.batch_size={len(graphs)}"]
    recipe = graph_recipe("paper", "zinc", changes)[1].settled(graphs)
    atoms, everything = list(graphs.node_cardinalities), np.arange(len(graphs))
    return GraphCase("zinc-2k", store, everything, recipe, atoms, [1])


class PooledPolynomial(nn.Module):
    """A polynomial model over the one-hot atoms of many graphs, mean pooling, a linear layer."""

    def __init__(self, name: str, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.filter = BASELINES[name](in_channels, WIDTH, WIDTH, order=10)
        self.readout = nn.Linear(WIDTH, out_channels)

    def forward(self, x: Tensor, propagation: Propagation, graph: Tensor, sizes: Tensor) -> Tensor:
        nodes = self.filter(x, propagation)
        sums = nodes.new_zeros(len(sizes), WIDTH).index_add(0, graph, nodes)
        out: Tensor = self.readout(sums / sizes.unsqueeze(1))
        return out


def polynomial(name: str, case: GraphCase, graphs: GraphSet, device: torch.device) -> Candidate:
    """A peer in the plain loop; all molecules are one graph with many components."""

    def build() -> Runner:
        propagation = Propagation(joined_adjacency(graphs), device=device)
        atoms = torch.as_tensor(graphs.node_feat[:, 0].astype(np.int64)).to(device)
        x = nn.functional.one_hot(atoms, graphs.node_cardinalities[0]).float()
        sizes = torch.as_tensor(graphs.num_nodes).to(device)
        graph = torch.repeat_interleave(torch.arange(len(graphs), device=device), sizes)
        labels = torch.as_tensor(graphs.y).to(device)
        model = PooledPolynomial(name, x.shape[1], graphs.num_tasks).to(device)

        def loss(_: int) -> Tensor:
            return case.loss(model(x, propagation, graph, sizes), labels)

        return plain_steps(case, model, loss, device)

    return Candidate(name, build)


def joined_adjacency(graphs: GraphSet) -> sp.csr_array:
    """One adjacency matrix with a block for every graph."""
    shift = np.repeat(starts(graphs.num_nodes)[:-1], graphs.num_edges)
    one, other = graphs.edge_index + shift
    total = int(graphs.num_nodes.sum())
    half = sp.coo_array((np.ones(one.size), (one, other)), (total, total))
    return sp.csr_array(half + half.T)
