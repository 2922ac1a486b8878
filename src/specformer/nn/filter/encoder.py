r"""Eigenvalues as vectors, and a Transformer over the set of them (paper §4.1, Eq. 2 and 3)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.nn.argument_checks import check_counts, check_encoding
from specformer.nn.filter.attention import MultiHeadAttention
from specformer.nn.layers.fast_paths import Remembered, Weights
from specformer.nn.layers.linear import LayerNorm, Linear, feed_forward
from specformer.nn.layers.reset import Derived


class EigenvalueEncoding(Derived):
    r"""The eigenvalue beside sines and cosines of it at geometrically spaced frequencies.

    .. math::
        \rho(\lambda, 2i) = \sin(\epsilon\lambda / 10000^{2i/d}), \quad
        \rho(\lambda, 2i+1) = \cos(\epsilon\lambda / 10000^{2i/d}), \quad
        z = [\lambda \,\Vert\, \rho(\lambda)]

    Args:
        channels: d, even.
        epsilon: stretches [0, 2] over the wavelengths; with 1 most channels are constant.
        waves: False leaves the eigenvalue alone, for ablations.

    Shapes: input ``[q]``, output ``[q, channels + 1]``.

    Example:
        >>> EigenvalueEncoding(4)(torch.zeros(1))
        tensor([[0., 0., 1., 0., 1.]])
    """

    frequencies: Tensor

    def __init__(self, channels: int, epsilon: float = 100.0, waves: bool = True) -> None:
        super().__init__()
        self.channels = check_encoding(channels, epsilon) * waves
        self.epsilon = epsilon
        self._known = Remembered()
        self.register_derived()

    def derived(self) -> dict[str, Tensor]:
        """The frequencies, in float64 until the module is cast."""
        exponents = torch.arange(0, self.channels, 2, dtype=torch.float64) / max(self.channels, 1)
        return {"frequencies": self.epsilon / 10000.0**exponents}

    def forward(self, eigenvalues: Tensor) -> Tensor:
        return self._known(eigenvalues, self.frequencies.dtype, lambda: self.encode(eigenvalues))

    def encode(self, eigenvalues: Tensor) -> Tensor:
        """The encoding, computed anew."""
        angles = eigenvalues.unsqueeze(-1) * self.frequencies.to(eigenvalues.dtype)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return torch.cat([eigenvalues.unsqueeze(-1), waves], dim=-1)

    def extra_repr(self) -> str:
        return f"{self.channels}, epsilon={self.epsilon}"


class EncoderBlock(nn.Module):
    r"""Attention and a feed-forward network of width d, each on normalised input and added to it.

    .. math::
        \tilde Z = \mathrm{MHA}(\mathrm{LN}(Z)) + Z, \quad
        \hat Z = \mathrm{FFN}(\mathrm{LN}(\tilde Z)) + \tilde Z

    Without attention (``attends=False``) :math:`\tilde Z = Z`.
    """

    def __init__(
        self, channels: int, num_heads: int, dropout: float = 0.0, attends: bool = True
    ) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(channels) if attends else None
        self.attention = MultiHeadAttention(channels, num_heads) if attends else None
        self.feed_forward_norm = LayerNorm(channels)
        self.feed_forward = feed_forward(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, z: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        return self.updated(z, self.attended(z, keys, weights))

    def attended(self, z: Tensor, keys: Tensor, weights: Weights) -> Tensor | None:
        """MHA(LN(Z)), where Z attends to ``keys``, of the given weights; None without attention."""
        if self.attention is None or self.attention_norm is None:
            return None
        normed = self.attention_norm(z)
        normed_keys = normed if keys is z else self.attention_norm(keys)
        return cast(Tensor, self.attention(normed, normed_keys, weights))

    def updated(self, z: Tensor, attended: Tensor | None) -> Tensor:
        """The block's output from its input and what attention makes of it."""
        z = z if attended is None else z + self.dropout(attended)
        return cast(Tensor, z + self.dropout(self.feed_forward(self.feed_forward_norm(z))))


class SpectrumEncoder(nn.Module):
    r"""One vector for each eigenvalue, aware of all others.

    Args:
        channels, num_heads, num_blocks: width d, attention heads and depth.
        dropout: on the output of attention and of the feed-forward network.
        epsilon: see :class:`EigenvalueEncoding`.
        encodes: whether the sines and cosines of an eigenvalue are seen, or the number alone.
        attends: whether eigenvalues see each other.

    Shapes: eigenvalues ``[p]``, their multiplicities or other weights ``[p]``, output ``[p, d]``.
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
        self.encoding = EigenvalueEncoding(channels, epsilon, waves=encodes)
        self.embedding = Linear(self.encoding.channels + 1, channels)
        self.blocks = nn.ModuleList(
            EncoderBlock(channels, num_heads, dropout, attends) for _ in range(num_blocks)
        )

    def forward(self, eigenvalues: Tensor, weights: Weights) -> Tensor:
        z: Tensor = self.embedding(self.encoding(eigenvalues))
        for block in self.blocks:
            z = block(z, z, weights)
        return z
