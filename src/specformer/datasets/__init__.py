"""Names to data: signals, graphs with labels, generated graphs, splits."""

from specformer.datasets.csbm import csbm
from specformer.datasets.filters import FILTERS, TargetFilter, target_filter
from specformer.datasets.photographs import photographs
from specformer.datasets.registry import NODE_SETS, dense_features, node_graph
from specformer.datasets.signals import (
    SignalSet,
    grid_graph,
    grid_mirrors,
    image_signal,
    paper_images,
)
from specformer.datasets.splits import PROTOCOLS, Split, make_splits, random_60_20_20

__all__ = [
    "FILTERS",
    "NODE_SETS",
    "PROTOCOLS",
    "SignalSet",
    "Split",
    "TargetFilter",
    "csbm",
    "dense_features",
    "grid_graph",
    "grid_mirrors",
    "image_signal",
    "make_splits",
    "node_graph",
    "paper_images",
    "photographs",
    "random_60_20_20",
    "target_filter",
]
