r"""Bases (paper §4.2, Eq. 5) and one convolution (App. "Specformer Layer") of many small graphs."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor, nn

from specformer.kernels.messages import Logits, gelu_lift, message_sum, softmax_over_sources
from specformer.kernels.segments import widened
from specformer.nn.argument_checks import check_choices
from specformer.nn.conv.graph_pairs import GraphPairs
from specformer.nn.layers.batch_norm import Activation, BatchNorm, activation_module

BasesNorm = Literal["batch"] | None
Normalisation = Literal["softmax"] | None


class GraphBases(nn.Module):
    r"""The entry-wise network over the bases, with a weight for every pair and channel.

    .. math::
        \hat S_{ij} = \mathrm{FFN}([I \,\Vert\, S_1 \,\Vert \dots \Vert\, S_M]_{ij}), \quad
        \text{perhaps}\quad \hat S_{ij} \leftarrow
        \frac{\exp \hat S_{ij}}{\sum_k \exp \hat S_{ik}}

    Both layers are of width d and may be batch-normalised. The activation of the first is GELU.
    Dropout is on the output of the second, before any softmax (``normalise``) over the sources of
    each target, channel by channel.

    Shapes: entries ``[P, heads + 1]``, output ``[P, channels]``.
    """

    def __init__(
        self,
        num_heads: int,
        channels: int,
        *,
        norm: BasesNorm = None,
        activation: Activation = None,
        dropout: float = 0.0,
        normalise: Normalisation = None,
    ) -> None:
        super().__init__()
        given = {"bases_norm": norm, "normalise_bases": normalise}
        check_choices(given, bases_norm=("batch", None), normalise_bases=("softmax", None))
        # No run axis here, so PyTorch's own layers: they add the bias within the product.
        self.first = nn.Linear(num_heads + 1, channels)
        self.first_norm = BatchNorm(channels) if norm else None
        self.second = nn.Linear(channels, channels)
        self.second_norm = BatchNorm(channels) if norm else None
        self.activation = activation_module(activation)
        self.dropout = nn.Dropout(dropout)
        self.normalise = normalise

    def forward(self, entries: Tensor, pairs: GraphPairs) -> Tensor | Logits:
        """The weights of every pair and channel; perhaps before their softmax."""
        hidden = gelu_lift(entries, *self._first_map(entries, pairs))
        out: Tensor = self.dropout(self._second(hidden, pairs))
        return softmax_over_sources(out, pairs) if self.normalise else out

    def _first_map(self, entries: Tensor, pairs: GraphPairs) -> tuple[Tensor, Tensor]:
        """Weight and bias of the first layer, with its normalisation folded in."""
        if self.first_norm is None:
            return self.first.weight, self.first.bias
        statistics = pairs.statistics(entries, self.first_norm)
        return self.first_norm.folded(self.first, statistics)

    def _second(self, hidden: Tensor, pairs: GraphPairs) -> Tensor:
        if self.second_norm is not None and isinstance(self.activation, nn.GELU):
            return self.second_norm.activated(self.second, hidden, pairs.pairs, "gelu")
        out = self.second(hidden)
        if self.second_norm is not None:
            out = self.second_norm(widened(out), pairs.pairs)
        return cast(Tensor, self.activation(out))

    def extra_repr(self) -> str:
        return f"normalise={self.normalise!r}"


class GraphConv(nn.Module):
    r"""Messages weighted by the bases and summed, then a feed-forward network, each added.

    .. math::
        \hat h_i = h_i + \sum_j \hat S_{ij} \odot \mathrm{GELU}(W(h_j + e_{ij}) + b), \qquad
        h_i' = \hat h_i + \mathrm{FFN}(\hat h_i)

    with j over all nodes of the graph, and two layers of linear map, batch normalisation and ReLU
    for FFN. Dropout is on the sum of messages, and on the output of FFN.

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
