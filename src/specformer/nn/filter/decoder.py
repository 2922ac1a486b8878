r"""From representations of eigenvalues to M new eigenvalues each (paper §4.2, Eq. 4)."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor, nn

from specformer.nn.filter.attention import WeightedAttention
from specformer.nn.layers.fast_paths import Weights
from specformer.nn.layers.linear import LayerNorm, Linear

DecoderKind = Literal["joint", "heads"]


class JointDecoder(nn.Module):
    r"""One linear map of the whole representation, as in the authors' released code.

    .. math::
        [\lambda_1 \dots \lambda_M] = \hat Z W + b
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.linear = Linear(channels, num_heads)

    def forward(self, z: Tensor, keys: Tensor, weights: Weights) -> Tensor:  # noqa: ARG002
        return cast(Tensor, self.linear(z))


class HeadsDecoder(nn.Module):
    r"""Each head decodes its own attention output with a shared vector, as in the paper's text.

    .. math::
        Z_m = \mathrm{Attention}(\hat Z W^Q_m, \hat Z W^K_m, \hat Z W^V_m), \quad
        \lambda_m = Z_m W_\lambda
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.norm = LayerNorm(channels)
        self.attention = WeightedAttention(channels, num_heads)
        self.linear = Linear(channels // num_heads, 1)

    def forward(self, z: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        normed = self.norm(z)
        normed_keys = normed if keys is z else self.norm(keys)
        heads = self.attention.heads(normed, normed_keys, weights)  # [..., heads, p, width]
        decoded = self.linear(heads.flatten(-3, -2))  # one map for all heads
        return cast(Tensor, decoded.reshape(heads.shape[:-1]).mT)
