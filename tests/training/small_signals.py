"""Two signals on a small grid, two filters of each to recover, and models for all four runs."""

from __future__ import annotations

import torch
from tests.training.seeded import seeded
from tests.undropped import undropped
from torch import nn

from specformer import Specformer, decompose
from specformer.baselines import GPRGNN, Propagation
from specformer.datasets import grid_graph, target_filter
from specformer.training.loops.signals import SignalTask

GRID = grid_graph(5, 5)  # square: 25 pairs, fewer tokens
SPECTRUM = decompose(GRID, dtype=torch.float64)
FILTERS = ("band-pass", "comb")
SIGNALS = 2
RUNS = SIGNALS * len(FILTERS)


def make_task(mask: str = "inner") -> SignalTask:
    generator = torch.Generator().manual_seed(0)
    inner = torch.zeros(5, 5, dtype=torch.bool)
    inner[1:4, 1:4] = True
    return SignalTask(
        spectrum=SPECTRUM,
        signals=torch.rand(SIGNALS, 25, generator=generator, dtype=torch.float64),
        responses=torch.stack([target_filter(f)(SPECTRUM.distinct.values) for f in FILTERS]),
        mask=inner.flatten() if mask == "inner" else torch.ones(25, dtype=torch.bool),
    )


def specformers(**settings) -> list[nn.Module]:
    options = {"num_layers": 1, "num_heads": 1, "sharing": "small", "space": "hidden"}
    return seeded(lambda: undropped(1, 8, 1, bias=False, **options, **settings), RUNS)


def baselines() -> list[nn.Module]:
    return seeded(lambda: GPRGNN(1, 6, 1, num_layers=3, self_loops=False), RUNS)


def operator_of(models: list[nn.Module]) -> object:
    if isinstance(models[0], Specformer):
        return SPECTRUM
    return Propagation(GRID.adjacency, dtype=torch.float64)
