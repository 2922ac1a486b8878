r"""Heads of attention by as few operations as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from specformer.kernels.weighted_attention import Ranges, weighted_attention
from specformer.nn.layers.linear import Linear, joined
from specformer.nn.layers.remembered import Remembered

#: How often each key counts.
Weights = Tensor | Ranges


class Attend:
    """Linear maps to queries, keys and values, then attention; scores are never held."""

    def __init__(self) -> None:
        self._known = Remembered()

    def __call__(
        self,
        maps: Sequence[Linear],
        num_heads: int,
        tokens: Tensor,
        keys: Tensor,
        weights: Weights,
    ) -> Tensor:
        """The output of every head, ``[..., heads, p, width]``."""
        packed = projected(maps, num_heads, tokens, keys)
        return weighted_attention(packed, weights, scale_of(packed), self._known)


def projected(maps: Sequence[Linear], num_heads: int, tokens: Tensor, keys: Tensor) -> list[Tensor]:
    """Queries, keys and values side by side, ``[..., p, 3, heads, width]``, by one product.

    Where keys are not the tokens themselves: queries, then keys and values.
    """
    parts = [(tokens, maps)] if keys is tokens else [(tokens, maps[:1]), (keys, maps[1:])]
    return [joined(x, some).unflatten(-1, (len(some), num_heads, -1)) for x, some in parts]


def scale_of(packed: Sequence[Tensor]) -> float:
    r"""The factor of the scores, :math:`1 / \sqrt{d_h}`."""
    return 1.0 / math.sqrt(packed[0].shape[-1])
