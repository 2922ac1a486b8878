r"""From representations of eigenvalues to new eigenvalues, one set a head (paper §4.2, Eq. 4)."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.activation import Activation, activation_module
from specformer.nn.attention import Sets, WeightedAttention
from specformer.nn.linear import LayerNorm, Linear

DecoderKind = Literal["joint", "heads"]


class JointDecoder(nn.Module):
    r"""One linear map over the whole representation, as the authors' released code has it.

    .. math::
        [\lambda_1 \dots \lambda_M] = \phi(\hat Z W + b)
    """

    def __init__(self, channels: int, num_heads: int, activation: Activation = None) -> None:
        super().__init__()
        self.linear = Linear(channels, num_heads)
        self.activation = activation_module(activation)

    def forward(self, hidden: Tensor, keys: Tensor, weights: Tensor | Sets) -> Tensor:  # noqa: ARG002
        return cast(Tensor, self.activation(self.linear(hidden)))


class HeadsDecoder(nn.Module):
    r"""Each head decodes its own attention output with a shared vector, as the paper's text says.

    .. math::
        Z_m = \mathrm{Attention}(\hat Z W^Q_m, \hat Z W^K_m, \hat Z W^V_m), \quad
        \lambda_m = \phi(Z_m W_\lambda)
    """

    def __init__(self, channels: int, num_heads: int, activation: Activation = None) -> None:
        super().__init__()
        self.norm = LayerNorm(channels)
        self.attention = WeightedAttention(channels, num_heads)
        self.linear = Linear(channels // num_heads, 1)
        self.activation = activation_module(activation)

    def forward(self, hidden: Tensor, keys: Tensor, weights: Tensor | Sets) -> Tensor:
        normed = self.norm(hidden)
        normed_keys = normed if keys is hidden else self.norm(keys)
        heads = self.attention.heads(normed, normed_keys, weights)  # [..., heads, p, width]
        lead, width = heads.shape[:-2], heads.shape[-1]
        # Fold heads into tokens: the linear map is shared by them but not by stacked runs.
        folded = heads.reshape(*lead[:-1], -1, width)
        decoded = self.linear(folded).reshape(*lead, -1)
        return cast(Tensor, self.activation(decoded.mT))


def make_decoder(
    kind: DecoderKind, channels: int, num_heads: int, activation: Activation
) -> nn.Module:
    """The decoder of that name."""
    if kind == "joint":
        return JointDecoder(channels, num_heads, activation)
    if kind == "heads":
        return HeadsDecoder(channels, num_heads, activation)
    raise ConfigError(f"decoder={kind!r}: choose 'joint' or 'heads'.")
