r"""Vectors for what is known of atoms and of bonds."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.kernels.tracing import first_order
from specformer.nn.argument_checks import check_counts
from specformer.nn.layers.linear import DerivedBuffers
from specformer.spectrum.many.packed_graphs import PackedGraphs

#: A matrix of ones and zeros this wide is small enough to be made at every step.
_MOST_VALUES = 1024


def checked_cardinalities(name: str, given: Sequence[int]) -> list[int]:
    """How many values each column may take, as a list; anything else is refused under ``name``."""
    try:
        counts = [operator.index(count) for count in given]
    except TypeError:  # a plain number, or something that is not a whole number
        counts = []
    if not counts or min(counts) < 1:
        raise ConfigError(f"{name}={given!r}: give a list, one number of at least 1 per column.")
    return counts


class FeatureEmbedding(DerivedBuffers):
    r"""The sum of one learned vector per column, :math:`\sum_c W^{(c)}_{x_c}`.

    ``cardinalities``: how many values each column may take. The columns' tables lie one after
    another in one parameter. Values are taken as they are: that they lie below their column's
    cardinality is checked where data are read.

    Shapes: features ``[rows, columns]`` integers, output ``[rows, channels]``.
    """

    starts: Tensor

    def __init__(self, cardinalities: Sequence[int], channels: int) -> None:
        super().__init__()
        self.cardinalities = checked_cardinalities("cardinalities", cardinalities)
        self.channels = channels
        self.register_derived()
        self.weight = nn.Parameter(torch.empty(sum(self.cardinalities), channels))
        self.reset_parameters()

    def derived(self) -> dict[str, Tensor]:
        """Where each column's table begins."""
        ends = torch.tensor(self.cardinalities).cumsum(0)
        return {"starts": nn.functional.pad(ends[:-1], (1, 0))}

    def reset_parameters(self, std: float | None = None) -> None:
        """N(0, ``std``²); else N(0, 1) for one column, and Xavier's range, as OGB has, for more."""
        super().reset_parameters()
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


class MixedEmbedding(FeatureEmbedding):
    r"""Vectors of categories z and of ``in_channels`` numbers x, perhaps 0, beside them.

    .. math::
        \sum_c W^{(c)}_{z_c} + W \, \frac{x - \mu}{\sigma} + b
    """

    mean: Tensor
    std: Tensor

    def __init__(self, cardinalities: Sequence[int], channels: int, in_channels: int = 0) -> None:
        super().__init__(cardinalities, channels)
        self.in_channels = in_channels
        if in_channels:
            self.numbers = nn.Linear(in_channels, channels)
            self.register_buffer("mean", torch.zeros(in_channels))
            self.register_buffer("std", torch.ones(in_channels))

    def reset_parameters(self, std: float | None = None) -> None:
        super().reset_parameters(std)
        if hasattr(self, "mean"):  # not yet while it is made
            nn.init.zeros_(self.mean)
            nn.init.ones_(self.std)

    def of_numbers(self, x: Tensor | None, of: str, argument: str) -> Tensor | None:
        """The second part of the sum; None without numbers."""
        given = 0 if x is None else x.shape[1]
        if given != self.in_channels:
            raise ConfigError(
                f"the {of} have {given} numbers each, but the model has "
                f"{argument}={self.in_channels}."
            )
        if x is None:
            return None
        return self.numbers((x.to(self.mean) - self.mean) / self.std)

    @torch.no_grad()
    def standardise(self, x: Tensor) -> None:
        """Take μ and σ from numbers ``[n, in_channels]``; a constant one is only shifted."""
        std, mean = torch.std_mean(x.double(), dim=0, correction=0)
        varies = x.amin(dim=0) < x.amax(dim=0)
        self.mean.copy_(mean)
        self.std.copy_(torch.where(varies, std, 1.0))


class NodeEmbedding(MixedEmbedding):
    """Vectors for nodes: a batch of N rows to ``[N, channels]``."""

    def __init__(self, cardinalities: Sequence[int], channels: int, in_channels: int = 0) -> None:
        check_counts({"in_channels": in_channels}, "in_channels", least=0)
        super().__init__(cardinalities, channels, in_channels)

    def forward(self, batch: PackedGraphs) -> Tensor:  # type: ignore[override]
        numbers = self.of_numbers(batch.x, "nodes", "in_channels")
        vectors = super().forward(batch.nodes)
        return vectors if numbers is None else vectors + numbers


class EdgeEmbedding(MixedEmbedding):
    """Vectors ``[K, channels]`` for K kinds of edges; the first is none and has no numbers."""

    def __init__(self, cardinalities: Sequence[int], channels: int, edge_dim: int = 0) -> None:
        check_counts({"edge_dim": edge_dim}, "edge_dim", least=0)
        super().__init__([count + 1 for count in cardinalities], channels, edge_dim)

    def forward(self, batch: PackedGraphs) -> Tensor:  # type: ignore[override]
        x = None if batch.bond_x is None else batch.bond_x[1:]
        numbers = self.of_numbers(x, "edges", "edge_dim")
        vectors = super().forward(batch.bond_table)
        return vectors if numbers is None else torch.cat([vectors[:1], vectors[1:] + numbers])


class FingerprintEmbedding(nn.Module):
    r"""Vectors of fingerprints c, :math:`\mathrm{ReLU}(W \log(1 + c) + b)`, with dropout.

    Shapes: a batch of B graphs with fingerprints ``[B, size]``, output ``[B, channels]``.
    """

    def __init__(self, size: int, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = size
        self.map = nn.Linear(size, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: PackedGraphs) -> Tensor:
        counts = batch.fingerprints
        if counts is None or counts.shape[1] != self.size:
            given = "no fingerprints" if counts is None else f"fingerprints of {counts.shape[1]}"
            raise ConfigError(
                f"the graphs have {given}, but the model has fingerprint={self.size}: pack them "
                f"with fingerprint={self.size}, or give a PyG Data `fingerprints` "
                f"[1, {self.size}] of specformer.graphs.morgan_counts."
            )
        logs = counts.to(self.map.weight.dtype).log1p()
        return self.dropout(self.map(logs).relu())


def summed_rows(rows: Tensor, weight: Tensor) -> Tensor:
    r"""Sums of rows of a table, :math:`\sum_c W_{r_c}`, with a gradient that suits a GPU.

    It is :math:`H^\top G` with H the matrix of ones where a row is taken: a product, and the same
    each time, where PyTorch's own sorts the rows or adds them one after another.

    Shapes: rows ``[n, columns]``, all different within a line; weight ``[values, channels]``,
    output ``[n, channels]``.
    """
    return _SummedRows.apply(rows, weight)


class _SummedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.values = len(weight)
        return nn.functional.embedding(rows, weight).sum(dim=-2)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (rows,) = ctx.saved_tensors
        taken = gradients[0].new_zeros(len(rows), ctx.values).scatter_(1, rows, 1.0)
        return None, taken.mT @ gradients[0]
