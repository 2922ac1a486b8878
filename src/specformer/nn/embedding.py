r"""Vectors for the integer features of atoms and of bonds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError


class FeatureEmbedding(nn.Module):
    r"""The sum of one learned vector a column, :math:`\sum_c W^{(c)}_{x_c}`.

    The columns' tables lie one after another in one parameter. Values are taken as they are:
    that they lie below their column's cardinality is checked where data are read.

    Args:
        cardinalities: how many values each column may take.
        channels: width.

    Shapes: features ``[rows, columns]`` integers, output ``[rows, channels]``.

    Example:
        >>> atoms = FeatureEmbedding([28], 4)
        >>> torch.equal(atoms(torch.tensor([[5]]))[0], atoms.weight[5])
        True
    """

    starts: Tensor

    def __init__(self, cardinalities: Sequence[int], channels: int) -> None:
        super().__init__()
        if not cardinalities or min(cardinalities) < 1:
            raise ConfigError(
                f"cardinalities={list(cardinalities)}: give one number of at least 1 a column."
            )
        self.cardinalities = list(cardinalities)
        self.channels = channels
        ends = torch.tensor(self.cardinalities).cumsum(0)
        self.register_buffer("starts", nn.functional.pad(ends[:-1], (1, 0)), persistent=False)
        self.weight = nn.Parameter(torch.empty(sum(self.cardinalities), channels))
        self.reset_parameters()

    def reset_parameters(self, std: float | None = None) -> None:
        """Normal entries: sums over the columns of unit variance, or weights N(0, ``std``²)."""
        nn.init.normal_(self.weight, std=std or 1.0 / math.sqrt(len(self.cardinalities)))

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.embedding(features.long() + self.starts, self.weight).sum(dim=-2)

    def extra_repr(self) -> str:
        return f"{self.cardinalities}, {self.channels}"
