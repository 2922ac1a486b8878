r"""Vectors for the integer features of atoms and of bonds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from specformer.errors import ConfigError

#: A matrix of ones and zeros this wide is small enough to be made at every step.
_MOST_VALUES = 1024


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
        """N(0, ``std``²); else N(0, 1) for one column, and Xavier's range, as OGB has, for more."""
        if std is not None or len(self.cardinalities) == 1:
            nn.init.normal_(self.weight, std=1.0 if std is None else std)
            return
        for table in self.weight.detach().split(self.cardinalities):
            nn.init.xavier_uniform_(table)

    def forward(self, features: Tensor) -> Tensor:
        if features.shape[-1] != len(self.cardinalities):  # one column would be spread over all
            raise ConfigError(
                f"features have {features.shape[-1]} columns, but the model has cardinalities for "
                f"{len(self.cardinalities)}: {self.cardinalities}."
            )
        rows = features.long() + self.starts
        if self.weight.is_cuda and len(self.weight) <= _MOST_VALUES:
            return summed_rows(rows, self.weight)
        return nn.functional.embedding(rows, self.weight).sum(dim=-2)

    def extra_repr(self) -> str:
        return f"{self.cardinalities}, {self.channels}"


def summed_rows(rows: Tensor, weight: Tensor) -> Tensor:
    r"""Sums of rows of a table, :math:`\sum_c W_{r_c}`, with a gradient that suits a GPU.

    It is :math:`H^\top G` with H the matrix of ones where a row is taken: a product, and the same
    each time, where PyTorch's own sorts the rows or adds them one after another.

    Shapes: rows ``[n, columns]``, all different within a line; weight ``[values, channels]``,
    output ``[n, channels]``.

    Example:
        >>> summed_rows(torch.tensor([[0, 2]]), torch.tensor([[1.0], [2.0], [4.0]]))
        tensor([[5.]])
    """
    return cast(Tensor, _SummedRows.apply(rows, weight))


class _SummedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.values = len(weight)
        return nn.functional.embedding(rows, weight).sum(dim=-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (rows,) = ctx.saved_tensors
        taken = gradients[0].new_zeros(len(rows), ctx.values).scatter_(1, rows, 1.0)
        return None, taken.mT @ gradients[0]
