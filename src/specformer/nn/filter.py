r"""The set-to-set filter: eigenvalues in, new eigenvalues out (paper §3, §4.1 and §4.2)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from specformer.nn.argument_checks import (
    check_counts,
    check_eigenvalues,
    check_encoding,
    check_filter,
    check_split,
)
from specformer.nn.layers.fast_paths import Remembered, Weights, attend
from specformer.nn.layers.linear import Derived, LayerNorm, Linear, Resettable, feed_forward
from specformer.nn.tokens import EigenvalueSet, encoded, grouped
from specformer.spectrum import Keys

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
        return self.out(heads.transpose(-2, -3).flatten(-2))


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
        return self.attention(normed, normed_keys, weights)

    def updated(self, z: Tensor, attended: Tensor | None) -> Tensor:
        """The block's output from its input and what attention makes of it."""
        z = z if attended is None else z + self.dropout(attended)
        return z + self.dropout(self.feed_forward(self.feed_forward_norm(z)))


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


DecoderKind = Literal["joint", "heads"]


class JointDecoder(nn.Module):
    r"""One linear map of the whole representation, as in the authors' released code.

    .. math::
        [\lambda_1 \dots \lambda_M] = \hat Z W + b
    """

    reads_keys = False

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.linear = Linear(channels, num_heads)

    def forward(self, z: Tensor, keys: Tensor, weights: Weights) -> Tensor:  # noqa: ARG002
        return self.linear(z)


class HeadsDecoder(nn.Module):
    r"""Each head decodes its own attention output with a shared vector, as in the paper's text.

    .. math::
        Z_m = \mathrm{Attention}(\hat Z W^Q_m, \hat Z W^K_m, \hat Z W^V_m), \quad
        \lambda_m = Z_m W_\lambda
    """

    reads_keys = True

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
        return decoded.reshape(heads.shape[:-1]).mT


Decoder = JointDecoder | HeadsDecoder


class SpectralFilter(Resettable):
    r"""Maps a set of eigenvalues to M sets of new eigenvalues, :math:`[q] \to [q, M]`.

    Args:
        hidden_channels, num_blocks: width d and depth of the Transformer.
        num_heads: M.
        decoder: ``"joint"`` or ``"heads"``, see :class:`JointDecoder` and :class:`HeadsDecoder`.
        dropout: inside the Transformer.
        epsilon: scale of the eigenvalue encoding.
        encoding: False shows the Transformer the bare eigenvalue, for ablations.
        attention: False makes it a filter of each eigenvalue by itself, for ablations.

    Example:
        >>> import torch
        >>> filt = SpectralFilter(hidden_channels=32, num_heads=4)
        >>> filt(torch.linspace(0, 2, 10)).shape
        torch.Size([10, 4])
    """

    def __init__(
        self,
        hidden_channels: int = 32,
        num_heads: int = 4,
        num_blocks: int = 1,
        *,
        decoder: DecoderKind = "joint",
        dropout: float = 0.0,
        epsilon: float = 100.0,
        encoding: bool = True,
        attention: bool = True,
    ) -> None:
        super().__init__()
        check_filter(num_heads, dropout, decoder, attention)
        self.hidden_channels, self.num_heads = hidden_channels, num_heads
        self.encoder = SpectrumEncoder(
            hidden_channels, num_heads, num_blocks, dropout, epsilon, encoding, attention
        )
        kind = JointDecoder if decoder == "joint" else HeadsDecoder
        self.decoder = kind(hidden_channels, num_heads)

    def forward(self, eigenvalues: Tensor) -> Tensor:
        """New eigenvalues ``[q, heads]`` for eigenvalues ``[q]`` in any order, repeats and all."""
        check_eigenvalues(eigenvalues, self.encoder.embedding.weight.dtype)
        tokens, index = grouped(eigenvalues)
        return self.decode(tokens, index=index)

    def decode(
        self, tokens: EigenvalueSet, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> Tensor:
        """New eigenvalues ``[p, heads]`` of distinct eigenvalues with multiplicities, the tokens.

        With ``index`` ``[q]``, each eigenvalue's token, those of all eigenvalues, ``[q, heads]``.
        Under dropout equal eigenvalues then differ, as if attention had run over all of them.
        ``landmarks`` (:meth:`specformer.Spectrum.landmarks`) replace the tokens as attention's
        keys: O(p·b) instead of O(p²), to quadrature accuracy.
        """
        z, keys, weights, index = encoded(self.encoder, self.decoder, tokens, landmarks, index)
        new: Tensor = self.decoder(z, keys, weights)
        return new if index is None else new.index_select(-2, index)

    def extra_repr(self) -> str:
        return f"{self.hidden_channels}, num_heads={self.num_heads}"
