r"""Multi-head attention over a weighted set (paper §3, Eq. 1)."""

from __future__ import annotations

from torch import Tensor, nn

from specformer.nn.argument_checks import check_split
from specformer.nn.layers.fast_paths import Remembered, Weights, attend
from specformer.nn.layers.linear import Linear

#: Names of the linear maps to queries, keys and values.
PROJECTIONS = ("query", "key", "value")


class WeightedAttention(nn.Module):
    r"""Attention whose keys count as often as their weights say.

    .. math::
        \mathrm{head}(i) = \sum_j \mathrm{softmax}_j(q_i^\top k_j / \sqrt{d_h} + \log w_j)\, v_j

    A key of weight w acts as w equal keys. Attention over distinct eigenvalues with their
    multiplicities is therefore attention over all eigenvalues.

    Shapes: tokens ``[..., p, channels]``, keys ``[..., r, channels]``, weights ``[r]``, or
    ``[batch, r]`` where each graph of a batch has its own; a weight of 0 leaves a key out.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.channels, self.num_heads = channels, num_heads
        self.query = Linear(channels, channels)
        self.key = Linear(channels, channels)
        self.value = Linear(channels, channels)
        self._known = Remembered()

    def heads(self, tokens: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        """The output of every head, ``[..., heads, p, channels / heads]``."""
        maps = (self.query, self.key, self.value)
        return attend(maps, self.num_heads, tokens, keys, weights, self._known)

    def extra_repr(self) -> str:
        return f"{self.channels}, num_heads={self.num_heads}"


class MultiHeadAttention(WeightedAttention):
    """:class:`WeightedAttention` and the usual linear map of the concatenated heads."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__(channels, num_heads)
        self.out = Linear(channels, channels)

    def forward(self, tokens: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        heads = self.heads(tokens, keys, weights)
        out: Tensor = self.out(heads.transpose(-2, -3).flatten(-2))
        return out
