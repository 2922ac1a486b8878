r"""One graph convolution with bonds, on many small graphs (paper, App. "Specformer Layer")."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from specformer.kernels.messages import Logits, message_sum
from specformer.nn.conv.graph_pairs import GraphPairs
from specformer.nn.layers.batch_norm import BatchNorm


class GraphConv(nn.Module):
    r"""Messages weighted by the bases and summed, then a feed-forward network, each added.

    .. math::
        \hat h_i = h_i + \sum_j \hat S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b), \qquad
        h_i' = \hat h_i + \mathrm{FFN}(\hat h_i)

    with j over all nodes of the graph, and two layers of linear map, batch normalisation and ReLU
    for FFN.

    Args:
        channels: d.
        dropout: on the sum of messages, and on the output of FFN.

    Shapes: nodes ``[N, channels]``, bonds ``[kinds, channels]``, bases ``[P, channels]``, output as
    nodes.
    """

    def __init__(self, channels: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.message = nn.Linear(channels, channels)
        self.first = nn.Linear(channels, channels)
        self.first_norm = BatchNorm(channels)
        self.second = nn.Linear(channels, channels)
        self.second_norm = BatchNorm(channels)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, nodes: Tensor, bonds: Tensor, bases: Tensor | Logits, pairs: GraphPairs
    ) -> Tensor:
        nodes = nodes + self.dropout(message_sum(nodes, bonds, self.message, bases, pairs))
        hidden = self.first_norm.activated(self.first, nodes, pairs.nodes)
        update = self.second_norm.activated(self.second, hidden, pairs.nodes)
        return nodes + cast(Tensor, self.dropout(update))
