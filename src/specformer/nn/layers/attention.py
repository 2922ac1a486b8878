r"""The heads of attention with weighted keys, from linear maps to queries, keys and values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from specformer.kernels.weighted_attention import Ranges, weighted_attention
from specformer.nn.layers.linear import Linear, joint_linear

#: Names of the linear maps to queries, keys and values.
PROJECTIONS = ("query", "key", "value")
#: How often each key counts.
Weights = Tensor | Ranges


def attention_heads(
    maps: Sequence[Linear], num_heads: int, tokens: Tensor, keys: Tensor, weights: Weights
) -> Tensor:
    """The output of every head, ``[..., heads, p, channels / heads]``; stores no scores."""
    packed = projected(maps, num_heads, tokens, keys)
    return weighted_attention(packed, weights, head_scale(packed[0]))


def head_scale(packed: Tensor) -> float:
    r"""The factor of the scores, :math:`1 / \sqrt{d_h}`, for a result of :func:`projected`."""
    return 1.0 / math.sqrt(packed.shape[-1])


def projected(maps: Sequence[Linear], num_heads: int, tokens: Tensor, keys: Tensor) -> list[Tensor]:
    """Queries, keys and values in one tensor ``[..., p, 3, heads, width]``, by one product.

    If the keys are not the tokens themselves, the result is two tensors: queries, and keys with
    values.
    """
    parts = [(tokens, maps)] if keys is tokens else [(tokens, maps[:1]), (keys, maps[1:])]
    return [joint_linear(x, some).unflatten(-1, (len(some), num_heads, -1)) for x, some in parts]
