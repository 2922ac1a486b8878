r"""Principal neighbourhood aggregation, for many small graphs."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.kernels.segments import at_least_float32, segment_max
from specformer.nn.argument_checks import check_split
from specformer.nn.layers.linear import Linear

#: Variances up to this one count as zero, because the square root has no derivative at zero.
_LEAST_VARIANCE = 1e-5


class TowerLinear(nn.Module):
    """One linear map with bias per tower, from several inputs of ``in_channels / parts`` each.

    The towers are the blocks of one matrix, because one product is faster than many small ones.
    """

    def __init__(self, towers: int, in_channels: int, out_channels: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.weight = nn.Parameter(torch.empty(towers, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(towers, out_channels))
        bound = 1.0 / math.sqrt(in_channels)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def matrices(self) -> Tensor:
        """The matrix of every part, ``[parts, towers * in / parts, towers * out]``."""
        towers, _, out = self.weight.shape
        parts = self.weight.unflatten(1, (self.parts, -1)).transpose(0, 1)
        blocks = torch.eye(towers, dtype=parts.dtype, device=parts.device)
        spread = parts.unsqueeze(3) * blocks[:, None, :, None]  # [parts, towers, in, towers, out]
        return spread.reshape(self.parts, -1, towers * out)


class PNAConv(nn.Module):
    r"""Four aggregations of the neighbours' messages, each with three degree scalers.

    .. math::
        h_i' = W \Bigl(\mathrm{post}\bigl[h_i \,\Vert\, (1, \tfrac{\log(d_i + 1)}{\delta},
        \tfrac{\delta}{\log(d_i + 1)}) \otimes (\mathrm{mean}, \min, \max, \mathrm{std})_{j \sim i}
        \; \mathrm{pre}[h_i \,\Vert\, h_j \,\Vert\, e_{ij}]\bigr]\Bigr) + b

    pre and post are linear, so they are applied to each part of their input: the part of pre for
    :math:`h_i` and :math:`h_j` to every node, that for :math:`e_{ij}` to every kind of bond. The
    part for :math:`h_i` is added after aggregation, and degrees scale outputs of post.
    """

    def __init__(self, channels: int, towers: int, average_log_degree: float) -> None:
        super().__init__()
        self.towers, width = towers, channels // towers
        self.average_log_degree = average_log_degree
        self.bond = Linear(channels, width)
        self.pre = TowerLinear(towers, 3 * width, width, parts=3)
        self.post = TowerLinear(towers, 13 * width, width, parts=13)
        self.lin = Linear(channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
        of_target, of_source, of_bond = self.pre.matrices()
        own, sent = (nodes @ torch.cat([of_target, of_source], dim=1)).chunk(2, dim=1)
        of_kinds = self.bond(kinds).repeat(1, self.towers) @ of_bond
        messages = at_least_float32(bonds.at_sources(sent)) + at_least_float32(
            bonds.bond_vectors(of_kinds)
        )
        found = self._statistics(messages, at_least_float32(own + self.pre.bias.flatten()), bonds)
        first, *rest = self.post.matrices().split((1, 4, 4, 4))
        scaled = found @ torch.cat([part.flatten(0, 1) for part in rest], dim=1)
        plain, amplified, attenuated = scaled.chunk(3, dim=1)
        # Nodes without bonds are scaled as with one bond; their statistics are zero anyway.
        scale = (bonds.degree.clamp_min(1.0) + 1.0).log() / self.average_log_degree
        mixed = nodes @ first[0] + plain + amplified * scale + attenuated / scale
        return self.lin(mixed + self.post.bias.flatten())

    def _statistics(self, messages: Tensor, offset: Tensor, bonds: Bonds) -> Tensor:
        """Mean, minimum, maximum and deviation ``[N, 4 * channels]``, zeros without bonds."""
        count = bonds.degree.clamp_min(1.0)
        mean = bonds.sum(messages) / count
        variance = (bonds.sum(messages.square()) / count - mean.square()).clamp_min(_LEAST_VARIANCE)
        std = variance.sqrt().masked_fill(variance <= _LEAST_VARIANCE, 0.0)
        places = torch.cat([mean, *extremes(messages, bonds)], dim=1) + offset.repeat(1, 3)
        return torch.cat([places.masked_fill(bonds.is_isolated, 0.0), std], dim=1)

    def extra_repr(self) -> str:
        return f"towers={self.towers}, average_log_degree={self.average_log_degree}"


def extremes(messages: Tensor, bonds: Bonds) -> tuple[Tensor, Tensor]:
    """Minimum and maximum of the neighbours' messages.

    Shapes: messages ``[M, channels]``, both outputs ``[N, channels]``; zeros without neighbours.
    """
    both = segment_max(torch.cat([-messages, messages], dim=-1), bonds.by_target)
    low, high = both.chunk(2, dim=-1)
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
