r"""Attention with weighted keys."""

from __future__ import annotations

import math

from torch import Tensor, nn

from specformer.kernels.tracing import TensorCache as TensorCache
from specformer.kernels.weighted_attention import Ranges, weighted_attention
from specformer.nn.argument_checks import check_split
from specformer.nn.layers.linear import Linear, joint_linear

#: How often each key counts.
Weights = Tensor | Ranges
#: Names of the linear maps to queries, keys and values.
PROJECTIONS = ("query", "key", "value")


class WeightedAttention(nn.Module):
    r"""Attention in which each key has a weight.

    .. math::
        \mathrm{head}(i) = \sum_j \mathrm{softmax}_j(q_i^\top k_j / \sqrt{d_h} + \log w_j)\, v_j

    A key of weight w acts as w equal keys. Attention over distinct eigenvalues with their
    multiplicities is therefore attention over all eigenvalues. The scores are never stored.

    Shapes: tokens ``[..., p, channels]``, keys ``[..., r, channels]``, weights ``[r]``, or
    ``[batch, r]`` if each graph of a batch has its own; a weight of 0 leaves a key out.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.channels, self.num_heads = channels, num_heads
        self.scale = 1.0 / math.sqrt(channels // num_heads)
        self.query = Linear(channels, channels)
        self.key = Linear(channels, channels)
        self.value = Linear(channels, channels)
        self._cache = TensorCache()

    def heads(self, tokens: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        """The output of every head, ``[..., heads, p, channels / heads]``."""
        return weighted_attention(self.project(tokens, keys), weights, self.scale, self._cache)

    def project(self, tokens: Tensor, keys: Tensor) -> list[Tensor]:
        """Queries, keys and values in one tensor ``[..., p, 3, heads, width]``, by one product.

        If the keys are not the tokens themselves, the result is two tensors: queries, and keys with
        values.
        """
        maps = (self.query, self.key, self.value)
        parts = [(tokens, maps)] if keys is tokens else [(tokens, maps[:1]), (keys, maps[1:])]
        return [
            joint_linear(x, some).unflatten(-1, (len(some), self.num_heads, -1))
            for x, some in parts
        ]

    def extra_repr(self) -> str:
        return f"{self.channels}, num_heads={self.num_heads}"


class MultiHeadAttention(WeightedAttention):
    """:class:`WeightedAttention`, followed by a linear map of the concatenated heads."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__(channels, num_heads)
        self.out = Linear(channels, channels)

    def forward(self, tokens: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        heads = self.heads(tokens, keys, weights)
        return self.out(heads.transpose(-2, -3).flatten(-2))
