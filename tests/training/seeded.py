"""Models of several runs, each from a seed of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def seeded(make: Callable[[], nn.Module], runs: int) -> list[nn.Module]:
    """A model a run, in float64."""
    models = []
    for run in range(runs):
        torch.manual_seed(run)
        models.append(make().double())
    return models
