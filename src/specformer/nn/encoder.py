r"""A pre-norm Transformer over the set of eigenvalues (paper §4.1, Eq. 3)."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.attention import SelfAttention, condense
from specformer.nn.encoding import EigenvalueEncoding
from specformer.nn.linear import LayerNorm, Linear
from specformer.spectrum import Tokens


class EncoderBlock(nn.Module):
    r"""Attention and a feed-forward network of width d, each on normalised input and added to it.

    .. math::
        \tilde Z = \mathrm{MHA}(\mathrm{LN}(Z)) + Z, \quad
        \hat Z = \mathrm{FFN}(\mathrm{LN}(\tilde Z)) + \tilde Z
    """

    def __init__(self, channels: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(channels)
        self.attention = SelfAttention(channels, num_heads)
        self.feed_forward_norm = LayerNorm(channels)
        self.feed_forward = nn.Sequential(
            Linear(channels, channels), nn.GELU(), Linear(channels, channels)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        normed = self.attention_norm(tokens)
        normed_keys = normed if keys is tokens else self.attention_norm(keys)
        attended = tokens + self.dropout(self.attention(normed, normed_keys, weights))
        update = self.feed_forward(self.feed_forward_norm(attended))
        return cast(Tensor, attended + self.dropout(update))


class SpectrumEncoder(nn.Module):
    r"""Eigenvalues in, one vector each out, every one aware of all others.

    Args:
        channels: d.
        num_heads: attention heads.
        num_blocks: depth.
        dropout: on the output of attention and of the feed-forward network.
        epsilon: see :class:`EigenvalueEncoding`.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        num_blocks: int = 1,
        dropout: float = 0.0,
        epsilon: float = 100.0,
    ) -> None:
        super().__init__()
        if num_blocks < 0:
            raise ConfigError(f"num_blocks={num_blocks} must not be negative.")
        self.encoding = EigenvalueEncoding(channels, epsilon)
        self.embedding = Linear(channels + 1, channels)
        self.blocks = nn.ModuleList(
            EncoderBlock(channels, num_heads, dropout) for _ in range(num_blocks)
        )

    def forward(self, tokens: Tokens, landmarks: Tokens | None = None) -> tuple[Tensor, Tensor]:
        """Representations of the tokens and of the keys they attend to, ``[p, channels]`` each.

        With ``landmarks`` the keys are those few weighted points instead of the tokens.
        """
        hidden = self.embedding(self.encoding(tokens.values))
        if landmarks is None:
            for block in self.blocks:
                hidden = block(hidden, hidden, tokens.weights)
            return hidden, hidden
        keys = self.embedding(self.encoding(landmarks.values))
        for block in self.blocks:
            hidden = block(hidden, keys, landmarks.weights)
            keys = block(keys, keys, landmarks.weights)
        return hidden, keys

    def condensed_attention(self, tokens: Tokens, block: int = 0) -> Tensor:
        """One block's attention between low, medium and high frequencies, ``[heads, 3, 3]``."""
        hidden = self.embedding(self.encoding(tokens.values))
        for earlier in self.blocks[:block]:
            hidden = earlier(hidden, hidden, tokens.weights)
        chosen = cast(EncoderBlock, self.blocks[block])
        return condense(chosen.attention, chosen.attention_norm(hidden), tokens)
