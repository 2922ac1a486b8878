r"""GIN with features of bonds, for many small graphs."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.graph_baseline import GraphBaseline, normalised
from specformer.kernels.norms import CountedRows
from specformer.nn.layers.batch_norm import BatchNorm


def gine_sum(nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
    r"""What neighbours send, :math:`\sum_{j \sim i} \mathrm{ReLU}(h_j + e_{ij})`.

    A message is computed for every node and kind of bond, not for every pair.

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, output as nodes.
    """
    return bonds.sum_by_kind((nodes.unsqueeze(1) + kinds).relu())


class GINUpdate(nn.Module):
    """The network of GIN, of width 2d with a batch norm within, and its ε.

    Shapes: rows ``[rows, channels]``, of which some count; output alike.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.first = nn.Linear(channels, 2 * channels)
        self.norm = BatchNorm(2 * channels)
        self.second = nn.Linear(2 * channels, channels)

    def forward(self, summed: Tensor, counted: CountedRows) -> Tensor:
        hidden = normalised(self.norm, self.first(summed), counted).relu()
        return cast(Tensor, self.second(hidden))


class GINLayer(nn.Module):
    r"""One layer, :math:`\mathrm{MLP}\bigl((1 + \epsilon) h_i + \sum_{j \sim i} m_{ij}\bigr)`.

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, output as nodes.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.update = GINUpdate(channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds) -> Tensor:
        summed = (1.0 + self.update.epsilon) * nodes + gine_sum(nodes, kinds, bonds)
        return cast(Tensor, self.update(summed, bonds.layout.nodes))


class GIN(GraphBaseline):
    r"""Graph isomorphism network, its messages with features of bonds (GINE).

    From `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_ and
    `"Strategies for Pre-training Graph Neural Networks" <https://arxiv.org/abs/1905.12265>`_.

    .. math::
        h_i^{(l+1)} = h_i^{(l)} + \mathrm{ReLU}\Bigl(\mathrm{BN}\,\mathrm{MLP}\bigl(
        (1 + \epsilon_l) h_i^{(l)} + \sum_{j \sim i} \mathrm{ReLU}(h_j^{(l)} + e_{ij}^{(l)})
        \bigr)\Bigr)

    Arguments and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.

    Example:
        >>> len(GIN([28], [4], 16, 1, num_layers=3).layers)
        3
    """

    def build(self) -> None:
        self.stack(lambda: GINLayer(self.channels), bonds="each")
