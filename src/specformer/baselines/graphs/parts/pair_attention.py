r"""Attention among the nodes of each graph, with a number added to the score of every pair."""

from __future__ import annotations

from torch import Tensor, nn

from specformer.nn.argument_checks import check_split


class PairAttention(nn.Module):
    r"""Multi-head attention, :math:`\mathrm{softmax}_j(q_i^\top k_j / \sqrt{d_h} + b_{ij})\, v_j`.

    Args:
        channels: width d.
        num_heads: heads, of width :math:`d_h` each.
        dropout: on the attention's shares.

    Shapes: tokens ``[B, n, channels]``; bias ``[B, heads, n, n]`` or what broadcasts to it, minus
    infinity for padding; output as tokens.
    """

    def __init__(self, channels: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.num_heads = num_heads
        self.dropout = dropout
        self.project = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        heads = self.project(tokens).unflatten(-1, (3, self.num_heads, -1)).movedim(-3, 0)
        query, key, value = heads.transpose(-2, -3)
        size = tokens.shape[1]
        mixed = nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=bias.to(query.dtype).expand(len(tokens), self.num_heads, size, size),
            dropout_p=self.dropout if self.training else 0.0,
        )
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return out

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, dropout={self.dropout}"
