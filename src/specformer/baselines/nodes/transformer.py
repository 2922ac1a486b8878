r"""Transformer: attention among all nodes, without using the edges."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.single_graph import Composite, SingleGraphModel
from specformer.nn.argument_checks import check_split
from specformer.nn.layers.linear import LayerNorm, Linear

#: Takes queries, keys and values ``[runs, heads, n, d]`` and returns the output of attention.
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def working_type(query: Tensor) -> torch.dtype:
    """The precision of attention: bfloat16 if ``set_float32_matmul_precision`` is "medium".

    On an H200 this is nine times as fast for 7,650 nodes.
    """
    brief = torch.get_float32_matmul_precision() == "medium" and query.dtype == torch.float32
    return torch.bfloat16 if brief else query.dtype


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None
) -> Tensor:
    r""":math:`\mathrm{softmax}(Q K^\top / \sqrt{d} + b) V` for each run and head."""
    q, k, v = (part.to(working_type(query)) for part in (query, key, value))
    return scaled_dot_product_attention(q, k, v, attn_mask=bias).to(query.dtype)


class NodeAttention(Composite):
    r"""Multi-head attention among nodes.

    .. math::
        \mathrm{softmax}\bigl(Q_h K_h^\top / \sqrt{d_h}\bigr) V_h

    The heads are concatenated and projected. If PyTorch has a fused kernel, the scores are never
    stored. Another function may be given as ``attention``, such as one with a bias for every pair.

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
            parts = parts.unsqueeze(0)  # fused kernels need a batch axis
        query, key, value = parts.unbind(-4)
        mixed = attention(query, key, value)
        return self.out(mixed.transpose(-2, -3).reshape(h.shape))


class TransformerBlock(Composite):
    r"""Attention and a feed-forward network of the same width, each with layer norm first.

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

    From `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_, with layer norms first.

    .. math::
        H^{(0)} = X W_{\mathrm{in}} + b_{\mathrm{in}}, \qquad
        H^{(l)} = \mathrm{Block}_l(H^{(l-1)}), \qquad
        Z = \mathrm{LN}(H^{(L)}) W_{\mathrm{out}} + b_{\mathrm{out}}

    It does not use the graph: there are no edges and no positional encodings. In Specformer's
    Table 2 it has 32 channels and two blocks (37,000 parameters on Photo).
    """

    repr_arguments = ("num_layers", "heads")

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
        """The input of the first block, [..., n, hidden_channels]."""
        return self.lin_in(self.dropout(x))

    def attention(self, propagation: Propagation) -> Attention:  # noqa: ARG002
        """The attention function of all blocks."""
        return plain_attention
