"""Names to data: signals, graphs with labels, generated graphs, splits."""

from specformer.datasets.batches import Batch, Batches
from specformer.datasets.csbm import csbm
from specformer.datasets.features import (
    FeaturePreparation,
    dense_features,
    prepare_features,
    sparse_features,
)
from specformer.datasets.molecule_splits import graph_split
from specformer.datasets.packed import BatchShape, GraphStore, pack
from specformer.datasets.registry import GRAPH_SETS, NODE_SETS, graph_set, node_graph
from specformer.datasets.signals import (
    FILTERS,
    SignalSet,
    grid_graph,
    grid_mirrors,
    image_signal,
    paper_images,
    photographs,
    target_filter,
)
from specformer.datasets.splits import Split, make_splits, random_60_20_20

__all__ = [
    "FILTERS",
    "GRAPH_SETS",
    "NODE_SETS",
    "Batch",
    "BatchShape",
    "Batches",
    "FeaturePreparation",
    "GraphStore",
    "SignalSet",
    "Split",
    "csbm",
    "dense_features",
    "graph_set",
    "graph_split",
    "grid_graph",
    "grid_mirrors",
    "image_signal",
    "make_splits",
    "node_graph",
    "pack",
    "paper_images",
    "photographs",
    "prepare_features",
    "random_60_20_20",
    "sparse_features",
    "target_filter",
]
