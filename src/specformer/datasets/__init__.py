"""Names to data: signals, generated graphs, splits."""

from specformer.datasets.csbm import csbm
from specformer.datasets.filters import FILTERS, TargetFilter, target_filter
from specformer.datasets.photographs import photographs
from specformer.datasets.signals import (
    SignalSet,
    grid_graph,
    grid_mirrors,
    image_signal,
    paper_images,
)
from specformer.datasets.splits import Split, random_60_20_20

__all__ = [
    "FILTERS",
    "SignalSet",
    "Split",
    "TargetFilter",
    "csbm",
    "grid_graph",
    "grid_mirrors",
    "image_signal",
    "paper_images",
    "photographs",
    "random_60_20_20",
    "target_filter",
]
