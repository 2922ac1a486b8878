r"""Embeddings of node features, edge features and fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.kernels.tracing import first_order
from specformer.nn.argument_checks import whole_numbers
from specformer.nn.layers.derived import DerivedBuffers
from specformer.spectrum.many.packed_graphs import PackedGraphs

#: Up to this many values, a one-hot matrix is small enough to be built at every step.
_MOST_VALUES = 1024


class FeatureEmbedding(DerivedBuffers):
    r"""Embed categorical features: the sum of one vector per column, :math:`\sum_c W^{(c)}_{x_c}`.

    ``cardinalities`` says how many values each column may take. The embedding tables of all columns
    are rows of one parameter. Values are not checked here, but where data are read.

    Shapes: features ``[rows, columns]`` integers, output ``[rows, channels]``.
    """

    starts: Tensor

    def __init__(self, cardinalities: Sequence[int], channels: int) -> None:
        super().__init__()
        self.cardinalities = whole_numbers("cardinalities", cardinalities)
        self.channels = channels
        self.register_derived()
        self.weight = nn.Parameter(torch.empty(sum(self.cardinalities), channels))
        self.reset_parameters()

    def derived(self) -> dict[str, Tensor]:
        """The first row of each column's table."""
        ends = torch.tensor(self.cardinalities).cumsum(0)
        return {"starts": nn.functional.pad(ends[:-1], (1, 0))}

    def reset_parameters(self, std: float | None = None) -> None:
        """Draw from N(0, ``std``²). Without ``std``: N(0, 1) for one column, Xavier for several.

        The second is the initialisation of OGB's encoders.
        """
        super().reset_parameters()
        if std is not None or len(self.cardinalities) == 1:
            nn.init.normal_(self.weight, std=1.0 if std is None else std)
            return
        for table in self.weight.detach().split(self.cardinalities):
            nn.init.xavier_uniform_(table)

    def forward(self, features: Tensor) -> Tensor:
        if features.shape[-1] != len(self.cardinalities):  # one column would be broadcast
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
    r"""Embed categories z and ``in_channels`` numbers x, which may be 0.

    .. math::
        \sum_c W^{(c)}_{z_c} + W \, \frac{x - \mu}{\sigma} + b
    """

    #: What is embedded, and the model's argument for the number of numbers; for error messages.
    rows: ClassVar[str]
    argument: ClassVar[str]
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
        if hasattr(self, "mean"):  # the base class calls this before the buffers exist
            nn.init.zeros_(self.mean)
            nn.init.ones_(self.std)

    def embed_numbers(self, x: Tensor | None) -> Tensor | None:
        """The part of the sum that comes from numbers; None without numbers."""
        given = 0 if x is None else x.shape[1]
        if given != self.in_channels:
            raise ConfigError(
                f"the {self.rows} have {given} numbers each, but the model has "
                f"{self.argument}={self.in_channels}."
            )
        if x is None:
            return None
        return self.numbers((x.to(self.mean) - self.mean) / self.std)

    @torch.no_grad()
    def standardise(self, x: Tensor) -> None:
        """Set μ and σ from numbers ``[n, in_channels]``; a constant column gets σ = 1."""
        x = x.unsqueeze(1) if x.dim() == 1 else x
        if not self.in_channels or len(x) == 0 or x.shape[1:] != self.mean.shape:
            shape, wanted = list(x.shape), f"{self.argument}={self.in_channels}"
            raise ConfigError(
                f"x has shape {shape}, but the model has {wanted} for the {self.rows}."
            )
        if not x.isfinite().all():
            raise ConfigError(f"the numbers of the {self.rows} are not all finite.")
        std, mean = torch.std_mean(x.double(), dim=0, correction=0)
        varies = x.amin(dim=0) < x.amax(dim=0)
        self.mean.copy_(mean)
        self.std.copy_(torch.where(varies, std, 1.0))


class NodeEmbedding(MixedEmbedding):
    """Embed the nodes of a batch, ``[N, channels]``."""

    rows, argument = "nodes", "in_channels"

    def forward(self, batch: PackedGraphs) -> Tensor:  # type: ignore[override]
        numbers = self.embed_numbers(batch.x)
        vectors = super().forward(batch.nodes)
        return vectors if numbers is None else vectors + numbers


class EdgeEmbedding(MixedEmbedding):
    """Embed the K kinds of edges of a batch, ``[K, channels]``; the first kind is "no edge"."""

    rows, argument = "edges", "edge_dim"

    def __init__(self, cardinalities: Sequence[int], channels: int, edge_dim: int = 0) -> None:
        super().__init__([count + 1 for count in cardinalities], channels, edge_dim)

    def forward(self, batch: PackedGraphs) -> Tensor:  # type: ignore[override]
        numbers = self.embed_numbers(None if batch.bond_x is None else batch.bond_x[1:])
        vectors = super().forward(batch.bond_table)
        return vectors if numbers is None else torch.cat([vectors[:1], vectors[1:] + numbers])


class FingerprintEmbedding(nn.Module):
    r"""Embed fingerprints c as :math:`\mathrm{ReLU}(W \log(1 + c) + b)`, with dropout.

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
                f"with fingerprint={self.size}, or give the model a PyG Batch without fingerprints."
            )
        logs = counts.to(self.map.weight.dtype).log1p()
        return self.dropout(self.map(logs).relu())


def summed_rows(rows: Tensor, weight: Tensor) -> Tensor:
    r"""Sums of rows of a table, :math:`\sum_c W_{r_c}`, with a gradient that suits a GPU.

    The gradient is the product :math:`H^\top G` with a matrix H of ones and zeros, and always the
    same to the bit. PyTorch's own sorts the rows or adds them one after another.

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
