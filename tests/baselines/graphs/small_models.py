"""A small model of every name, and the bonds of a batch as PyG has them."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn as pyg
from tests.nn.molecules import EDGE_CARDINALITIES, MAX_RING, NODE_CARDINALITIES
from tests.nn.plain_twin import scrambled

from specformer.baselines.graphs import GRAPH_BASELINES, GraphBaseline
from specformer.spectrum.many.packed_graphs import PackedGraphs

COLUMNS = (NODE_CARDINALITIES, EDGE_CARDINALITIES)
#: What a width of 8 needs.
SMALL: dict[str, dict[str, Any]] = {
    "gcn": {},
    "gin": {},
    "gatedgcn": {"walk_steps": 3},
    "pna": {"towers": 2},
    "gps": {"num_heads": 2, "walk_steps": 4, "walk_channels": 3},
    "graphormer": {"num_heads": 2, "max_distance": 3, "max_hops": 2},
    "san": {"num_heads": 2, "spectrum_channels": 4, "frequencies": 4},
    "dgn": {},
    "gsn": {"max_ring": MAX_RING},
    "cin": {"max_ring": MAX_RING},
    "gin-ak+": {"hops": 2},
    "specgn": {"order": 4},
}


def fresh(name: str, columns: Any = COLUMNS, **options: Any) -> GraphBaseline:
    """Width 8, three outputs, two layers."""
    torch.manual_seed(0)
    options = {"num_layers": 2, **SMALL[name], **options}
    model = GRAPH_BASELINES[name](*columns, 8, 3, **options)
    if name == "san":
        model.spectrum.eval()  # type: ignore[union-attr,operator]  # no signs flipped at random
    return model


def model_of(name: str, **options: Any) -> GraphBaseline:
    """The same in float64, with no parameter at 0 or 1."""
    return scrambled(fresh(name, **options))  # type: ignore[return-value]


def gine_of(layer: Any) -> pyg.GINEConv:
    """PyG's layer with the parameters of a layer of GIN, or of one that has its parts."""
    update = layer.update
    norm = torch.nn.BatchNorm1d(update.norm.channels).double()
    norm.weight, norm.bias = update.norm.weight, update.norm.bias
    network = torch.nn.Sequential(update.first, norm, torch.nn.ReLU(), update.second)
    oracle = pyg.GINEConv(network, train_eps=True)
    oracle.eps = update.epsilon
    return oracle


def edge_index(batch: PackedGraphs) -> torch.Tensor:
    """PyG's ``[2, E]``, from source to target."""
    joined = batch.bond > 0
    return torch.stack([batch.source[joined], batch.target[joined]])


def edge_kinds(batch: PackedGraphs) -> torch.Tensor:
    """The kind of each of these bonds."""
    return batch.bond[batch.bond > 0]


def listed_bonds(batch: PackedGraphs) -> list[frozenset[int]]:
    """The ends of all bonds, in the order of pairs whose source is before their target."""
    pairs = zip(batch.target.tolist(), batch.source.tolist(), batch.bond.tolist(), strict=True)
    return [frozenset((i, j)) for i, j, bond in pairs if bond and j < i]
