r"""One graph convolution with bonds, on many small graphs (paper, App. "Specformer Layer")."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.nn import kernels
from specformer.nn.batch_norm import BatchNorm
from specformer.nn.first_order import first_order
from specformer.nn.graph_bases import Layout, Logits, is_fused
from specformer.nn.segments import Segments, widened


class GraphConv(nn.Module):
    r"""Messages weighted by the bases and summed, then a feed-forward network, each added.

    .. math::
        \hat h_i = h_i + \sum_j \hat S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b), \qquad
        h_i' = \hat h_i + \mathrm{FFN}(\hat h_i)

    with j over all nodes of the graph, and two layers of linear map, batch normalisation and ReLU
    for FFN. Bonds are of few kinds, so :math:`W h_j` is computed for every node, :math:`W e` for
    every kind, and a message for every node and kind: never one for every pair.

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
        self, nodes: Tensor, bonds: Tensor, bases: Tensor | Logits, layout: Layout
    ) -> Tensor:
        nodes = nodes + self.dropout(self.summed(nodes, bonds, bases, layout))
        hidden = self.first_norm.activated(self.first, nodes, layout.nodes)
        update = self.second_norm.activated(self.second, hidden, layout.nodes)
        return nodes + cast(Tensor, self.dropout(update))

    def summed(
        self, nodes: Tensor, bonds: Tensor, bases: Tensor | Logits, layout: Layout
    ) -> Tensor:
        """The messages of all sources, weighted and summed, ``[N, channels]``."""
        if not (isinstance(bases, Logits) or is_fused(layout, nodes, bases)):
            messages = self.messages(nodes, bonds)
            return filtered_sum(messages, bases, layout.by_message, layout.by_target)
        weight, bias = self.message.weight, self.message.bias
        # The bias goes to the kinds: its gradient is then a sum over few rows.
        node, kind = nn.functional.linear(nodes, weight), nn.functional.linear(bonds, weight, bias)
        if isinstance(bases, Tensor):
            return kernels.pair_sum(node, kind, bases, layout.pair_index)
        return kernels.softmax_sum(node, kind, bases.values, layout.pair_index)

    def messages(self, nodes: Tensor, bonds: Tensor) -> Tensor:
        """What every node would send over every kind of bond, ``[N * kinds, channels]``."""
        of_nodes = widened(self.message(nodes)).unsqueeze(1)
        of_bonds = widened(nn.functional.linear(bonds, self.message.weight))
        return nn.functional.gelu(of_nodes + of_bonds).flatten(0, 1)


def filtered_sum(
    messages: Tensor, bases: Tensor, by_message: Segments, by_target: Segments
) -> Tensor:
    r"""The messages of all sources, weighted channel by channel and summed at their targets.

    .. math::
        y_i = \sum_{p:\, t(p) = i} S_p \odot m_{s(p)}

    Three passes over ``[P, channels]`` forward and six backward; only the arguments are kept.

    Shapes: messages ``[rows, channels]``, bases ``[P, channels]``, output ``[N, channels]``.
    """
    return cast(Tensor, _FilteredSum.apply(messages, bases, by_message, by_target))


class _FilteredSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, messages: Tensor, bases: Tensor, by_message: Segments, by_target: Segments
    ) -> Tensor:
        ctx.save_for_backward(messages, bases)
        ctx.by_message, ctx.by_target = by_message, by_target
        return by_target.sum(messages.index_select(0, by_message.index).mul_(bases))

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        messages, bases = ctx.saved_tensors
        at_pairs = ctx.by_target.spread(gradients[0])
        of_bases = messages.index_select(0, ctx.by_message.index).mul_(at_pairs)
        of_messages = ctx.by_message.sum(at_pairs.mul_(bases))
        return of_messages, of_bases, None, None
