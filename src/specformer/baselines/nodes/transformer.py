r"""Transformer: every node attends to every node, whatever the edges."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import Assembled, SingleGraphModel
from specformer.nn.argument_checks import check_split
from specformer.nn.layers.linear import LayerNorm, Linear

#: Mixes values ``[runs, heads, n, d]`` by queries and keys of the same shape, which come first.
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def working_type(query: Tensor) -> torch.dtype:
    """What attention computes in: bfloat16 where ``set_float32_matmul_precision`` allows it.

    On an H200 that is nine times as fast over 7,650 nodes.
    """
    brief = torch.get_float32_matmul_precision() == "medium" and query.dtype == torch.float32
    return torch.bfloat16 if brief else query.dtype


def plain_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    r""":math:`\mathrm{softmax}(Q K^\top / \sqrt{d}) V` for each run and head."""
    dtype = working_type(query)
    mixed = scaled_dot_product_attention(query.to(dtype), key.to(dtype), value.to(dtype))
    return mixed.to(query.dtype)


class NodeAttention(Assembled):
    r"""Multi-head attention among nodes.

    .. math::
        \mathrm{softmax}\bigl(Q_h K_h^\top / \sqrt{d_h}\bigr) V_h

    The heads are concatenated and projected. The scores are never held where PyTorch has a fused
    kernel. ``attention`` may be given in its place, such as one with a bias for every pair.

    Shapes: input and output ``[..., n, channels]``.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        check_split(channels, heads, "heads")
        self.heads = heads
        self.project = Linear(channels, 3 * channels)
        self.out = Linear(channels, channels)

    def forward(self, h: Tensor, attention: Attention = plain_attention) -> Tensor:
        parts = self.project(h).unflatten(-1, (3, self.heads, -1)).movedim(-4, -2)
        if h.dim() == 2:
            parts = parts.unsqueeze(0)  # fused kernels want a batch axis
        query, key, value = parts.unbind(-4)
        mixed = attention(query, key, value)
        return self.out(mixed.transpose(-2, -3).reshape(h.shape))


class TransformerBlock(Assembled):
    r"""Attention and a feed-forward network of the same width, each on normalised input.

    .. math::
        H' = H + \mathrm{MHA}(\mathrm{LN}(H)), \qquad H'' = H' + \mathrm{FFN}(\mathrm{LN}(H'))
    """

    def __init__(self, channels: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(channels)
        self.attention = NodeAttention(channels, heads)
        self.feed_forward_norm = LayerNorm(channels)
        self.widen = Linear(channels, channels)
        self.narrow = Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor, attention: Attention = plain_attention) -> Tensor:
        h = h + self.dropout(self.attention(self.attention_norm(h), attention))
        update = self.narrow(gelu(self.widen(self.feed_forward_norm(h))))
        return h + self.dropout(update)


class Transformer(SingleGraphModel):
    r"""A Transformer whose tokens are the nodes.

    From `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_, with its norms first.

    .. math::
        H^{(0)} = X W_{\mathrm{in}} + b_{\mathrm{in}}, \qquad
        H^{(l)} = \mathrm{Block}_l(H^{(l-1)}), \qquad
        Z = \mathrm{LN}(H^{(L)}) W_{\mathrm{out}} + b_{\mathrm{out}}

    It knows nothing of the graph: neither edges nor positions. In Specformer's Table 2 it is 32
    channels wide with two blocks (37,000 parameters on Photo).
    """

    shown = ("num_layers", "heads")

    def build(self, *, num_layers: int = 2, heads: int = 4) -> None:
        in_channels, hidden_channels, out_channels = self.channels
        self.lin_in = Linear(in_channels, hidden_channels)
        self.blocks = nn.ModuleList(
            TransformerBlock(hidden_channels, heads, self.dropout.p) for _ in range(num_layers)
        )
        self.norm = LayerNorm(hidden_channels)
        self.lin_out = Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        propagation.check(x)
        h = self.tokens(x, propagation)
        attention = self.attention(propagation)
        for block in self.blocks:
            h = block(h, attention)
        return self.lin_out(self.dropout(self.norm(h)))

    def tokens(self, x: Tensor, propagation: Propagation) -> Tensor:  # noqa: ARG002
        """What enters the first block, [..., n, hidden_channels]."""
        return self.lin_in(self.dropout(x))

    def attention(self, propagation: Propagation) -> Attention:  # noqa: ARG002
        """How nodes attend to each other in every block: by their scores alone."""
        return plain_attention
