r"""Principal neighbourhood aggregation, for many small graphs."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.kernels.segments import at_least_float32
from specformer.nn.argument_checks import check_split
from specformer.nn.layers.linear import Linear

#: Variances up to this one count as zero, because the square root has no derivative at zero.
_LEAST_VARIANCE = 1e-5


class TowerLinear(nn.Module):
    """One linear map with bias per tower, ``[rows, towers, in]`` to ``[rows, towers, out]``."""

    def __init__(self, towers: int, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(towers, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(towers, out_channels))
        bound = 1.0 / math.sqrt(in_channels)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("rti,tio->rto", x, self.weight) + self.bias


class PNAConv(nn.Module):
    r"""Four aggregations of the neighbours' messages, each with three degree scalers.

    .. math::
        h_i' = W \Bigl(\mathrm{post}\bigl[h_i \,\Vert\, (1, \tfrac{\log(d_i + 1)}{\delta},
        \tfrac{\delta}{\log(d_i + 1)}) \otimes (\mathrm{mean}, \min, \max, \mathrm{std})_{j \sim i}
        \; \mathrm{pre}[h_i \,\Vert\, h_j \,\Vert\, e_{ij}]\bigr]\Bigr) + b

    pre is linear, so its parts for :math:`h_i` and :math:`h_j` are computed for every node, and its
    part for :math:`e_{ij}` for every kind of bond. The part for :math:`h_i` is added after
    aggregation.
    """

    def __init__(self, channels: int, towers: int, average_log_degree: float) -> None:
        super().__init__()
        self.towers, self.width = towers, channels // towers
        self.average_log_degree = average_log_degree
        self.bond = Linear(channels, self.width)
        self.pre = TowerLinear(towers, 3 * self.width, self.width)
        self.post = TowerLinear(towers, 13 * self.width, self.width)
        self.lin = Linear(channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
        split = nodes.unflatten(-1, (self.towers, self.width))
        own, of_nodes = (
            torch.einsum("rti,tio->rto", split, part)
            for part in self.pre.weight.chunk(3, dim=1)[:2]
        )
        of_kinds = torch.einsum("ki,tio->kto", self.bond(kinds), self.pre.weight.chunk(3, dim=1)[2])
        sent, known = bonds.at_sources(of_nodes.flatten(1)), bonds.bond_vectors(of_kinds.flatten(1))
        messages = at_least_float32(sent) + at_least_float32(known)
        offset = at_least_float32(own + self.pre.bias).flatten(1)
        found = self._statistics(messages, offset, bonds)
        parts = [split, *(part.unflatten(-1, (self.towers, self.width)) for part in found)]
        return self.lin(self.post(torch.cat(parts, dim=-1)).flatten(1))

    def _statistics(self, messages: Tensor, offset: Tensor, bonds: Bonds) -> list[Tensor]:
        """Twelve tensors ``[N, channels]``, with zeros for nodes without bonds."""
        count = bonds.degree.clamp_min(1.0)
        mean = bonds.sum(messages) / count
        square = bonds.sum(messages.square()) / count
        variance = (square - mean.square()).clamp_min(_LEAST_VARIANCE)
        std = variance.sqrt().masked_fill(variance <= _LEAST_VARIANCE, 0.0)
        low, high = extremes(messages, bonds)
        found = [(offset + part).masked_fill(bonds.is_isolated, 0.0) for part in (mean, low, high)]
        found.append(std)
        # Nodes without bonds are scaled as with one bond; their aggregates are zero anyway.
        scale = (count + 1.0).log() / self.average_log_degree
        return [*found, *(part * scale for part in found), *(part / scale for part in found)]

    def extra_repr(self) -> str:
        return f"towers={self.towers}, average_log_degree={self.average_log_degree}"


def extremes(messages: Tensor, bonds: Bonds) -> tuple[Tensor, Tensor]:
    """Minimum and maximum of the neighbours' messages.

    Shapes: messages ``[M, channels]``, both outputs ``[N, channels]``; zeros without neighbours.
    """
    low, high = bonds.by_target.max(torch.cat([-messages, messages], dim=-1)).chunk(2, dim=-1)
    return -low, high


class PNA(GraphBaseline):
    r"""Principal neighbourhood aggregation with edge features and residuals.

    From `"Principal Neighbourhood Aggregation for Graph Nets"
    <https://arxiv.org/abs/2004.05718>`_.

    Args:
        towers: number of towers; each gets an equal part of the channels.
        average_log_degree: :math:`\delta`, the mean of :math:`\log(d + 1)` over training nodes;
            about 1.1 for molecules.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    def build(self, *, towers: int = 1, average_log_degree: float = 1.1) -> None:
        check_split(self.channels, towers, "towers")
        self.stack(lambda: PNAConv(self.channels, towers, average_log_degree))
