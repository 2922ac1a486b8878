r"""A pre-norm Transformer over the set of eigenvalues (paper §4.1, Eq. 3)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.nn.argument_checks import check_counts
from specformer.nn.attention import PackedTokens, SelfAttention, Sets, condense
from specformer.nn.encoding import EigenvalueEncoding
from specformer.nn.linear import LayerNorm, Linear
from specformer.nn.remembered import Remembered
from specformer.spectrum import Keys, Landmarks, Tokens


class EncoderBlock(nn.Module):
    r"""Attention and a feed-forward network of width d, each on normalised input and added to it.

    .. math::
        \tilde Z = \mathrm{MHA}(\mathrm{LN}(Z)) + Z, \quad
        \hat Z = \mathrm{FFN}(\mathrm{LN}(\tilde Z)) + \tilde Z

    Where it does not attend, :math:`\tilde Z = Z`.
    """

    def __init__(
        self, channels: int, num_heads: int, dropout: float = 0.0, attends: bool = True
    ) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(channels) if attends else None
        self.attention = SelfAttention(channels, num_heads) if attends else None
        self.feed_forward_norm = LayerNorm(channels)
        self.feed_forward = nn.Sequential(
            Linear(channels, channels), nn.GELU(), Linear(channels, channels)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Tensor,
        keys: Tensor,
        weights: Tensor | Sets,
        index: Tensor | None = None,
        sampled: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Updated tokens; with ``index`` ``[q]`` one for each of its entries, noise of its own.

        ``sampled``: tokens at a few points ``[r, channels]`` and the matrix ``[p, r]`` that
        interpolates from them; attention is then computed there, and ``tokens`` are already those
        of every entry of ``index``.
        """
        mixed = self._mixed(tokens if sampled is None else sampled[0], keys, weights)
        if sampled is not None and mixed is not None:
            mixed = _interpolated(sampled[1], mixed)
        if index is not None:
            mixed = None if mixed is None else mixed.index_select(-2, index)
            if sampled is None:
                tokens = tokens.index_select(-2, index)
        attended = tokens if mixed is None else tokens + self.dropout(mixed)
        update = self.feed_forward(self.feed_forward_norm(attended))
        return cast(Tensor, attended + self.dropout(update))

    def _mixed(self, queries: Tensor, keys: Tensor, weights: Tensor | Sets) -> Tensor | None:
        if self.attention is None or self.attention_norm is None:
            return None
        normed = self.attention_norm(queries)
        normed_keys = normed if keys is queries else self.attention_norm(keys)
        return cast(Tensor, self.attention(normed, normed_keys, weights))


def _interpolated(matrix: Tensor, values: Tensor) -> Tensor:
    """``matrix @ values``, with the runs of ``[..., r, channels]`` folded into columns."""
    lead, channels = values.shape[:-2], values.shape[-1]
    columns = values.movedim(-2, 0).reshape(values.shape[-2], -1)
    return (matrix @ columns).reshape(-1, *lead, channels).movedim(0, -2)


class SpectrumEncoder(nn.Module):
    r"""Eigenvalues in, one vector each out, every one aware of all others.

    Args:
        channels: d.
        num_heads: attention heads.
        num_blocks: depth.
        dropout: on the output of attention and of the feed-forward network.
        epsilon: see :class:`EigenvalueEncoding`.
        encodes: whether an eigenvalue's sines and cosines are seen, or the number alone.
        attends: whether eigenvalues see each other; else each goes its own way.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        num_blocks: int = 1,
        dropout: float = 0.0,
        epsilon: float = 100.0,
        encodes: bool = True,
        attends: bool = True,
    ) -> None:
        super().__init__()
        check_counts({"num_blocks": num_blocks}, "num_blocks", least=0)
        self._known = Remembered()
        self.encoding = EigenvalueEncoding(channels, epsilon, waves=encodes)
        self.embedding = Linear(self.encoding.channels + 1, channels)
        self.blocks = nn.ModuleList(
            EncoderBlock(channels, num_heads, dropout, attends) for _ in range(num_blocks)
        )

    @property
    def is_noisy(self) -> bool:
        """Whether dropout is at work: equal eigenvalues then have different representations."""
        dropouts = (cast(EncoderBlock, block).dropout for block in self.blocks)
        return self.training and any(dropout.p > 0 for dropout in dropouts)

    def forward(
        self,
        tokens: Tokens | PackedTokens,
        landmarks: Keys | None = None,
        index: Tensor | None = None,
        *,
        update_keys: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor | Sets]:
        """Representations of the tokens and of the keys they attend to, and the keys' weights.

        With ``landmarks`` the keys are those few weighted points instead of the tokens, and the
        first block's attention is computed at their points, if they have any. With
        ``index`` ``[q]`` every eigenvalue is represented, not every token: the first block attends
        over tokens, for nothing tells equal eigenvalues apart before the first dropout. Landmarks
        need not be updated by the last block (``update_keys``) where no decoder looks at them.

        Shapes: ``[p, channels]`` or ``[q, channels]``, ``[r, channels]``, ``[r]``.
        """
        weights, sampled = tokens.weights, None
        if landmarks is None:
            hidden = keys = self.embedding(self.encoding(tokens.values))
        elif not isinstance(landmarks, Landmarks) or landmarks.points is None:
            hidden, keys = self._embedded(tokens.values, landmarks.values)
        else:
            assert landmarks.interpolation is not None
            values = tokens.values if index is None else self._spread(tokens.values, index)
            hidden, keys, points = self._embedded(values, landmarks.values, landmarks.points)
            sampled = points, landmarks.interpolation
        if landmarks is not None:
            weights = landmarks.weights
        for number, block in enumerate(self.blocks):
            first = (index, sampled) if number == 0 else (None, None)
            updated = block(hidden, keys, weights, *first)
            if landmarks is None:
                keys = updated
            elif update_keys or number + 1 < len(self.blocks):
                keys = block(keys, keys, weights)
            hidden = updated
            if landmarks is not None or index is None or isinstance(weights, Sets):
                continue
            if len(weights) != len(index):
                weights = torch.ones_like(index, dtype=weights.dtype)
        return hidden, keys, weights

    def _embedded(self, *sets: Tensor) -> tuple[Tensor, ...]:
        """Several sets of eigenvalues embedded by one product, whose gradient is one too."""
        joined = self._known(sets[0], "joined", lambda: torch.cat(sets), *sets[1:])
        embedded: Tensor = self.embedding(self.encoding(joined))
        return cast(tuple[Tensor, ...], embedded.split([len(each) for each in sets], dim=-2))

    def _spread(self, values: Tensor, index: Tensor) -> Tensor:
        return self._known(values, "spread", lambda: values.index_select(0, index), index)

    def condensed_attention(
        self, tokens: Tokens, block: int = 0, frequencies: Tensor | None = None
    ) -> Tensor:
        """One block's attention between low, medium and high frequencies, ``[heads, 3, 3]``.

        No heads where there is no attention. ``frequencies`` as in
        :func:`specformer.nn.attention.condense`.
        """
        hidden = self.embedding(self.encoding(tokens.values))
        for earlier in self.blocks[:block]:
            hidden = earlier(hidden, hidden, tokens.weights)
        chosen = cast(EncoderBlock, self.blocks[block]) if self.blocks else None
        if chosen is None or chosen.attention is None or chosen.attention_norm is None:
            return cast(Tensor, hidden.new_empty(0, 3, 3))
        return condense(chosen.attention, chosen.attention_norm(hidden), tokens, frequencies)
