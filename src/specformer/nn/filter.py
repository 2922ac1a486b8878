r"""The set-to-set filter: eigenvalues in, new eigenvalues out (paper §3, §4.1 and §4.2)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_arguments, check_eigenvalues, check_split
from specformer.nn.layers.attention import Weights, attention_heads
from specformer.nn.layers.derived import DerivedBuffers, remembered
from specformer.nn.layers.linear import LayerNorm, Linear, Resettable, feed_forward
from specformer.nn.tokens import EigenvalueSet, distinct_tokens, encoded, own_noise
from specformer.spectrum import Keys


class EigenvalueEncoding(DerivedBuffers):
    r"""Encode an eigenvalue by itself and by sines and cosines of many frequencies.

    .. math::
        \rho(\lambda, 2i) = \sin(\epsilon\lambda / 10000^{2i/d}), \quad
        \rho(\lambda, 2i+1) = \cos(\epsilon\lambda / 10000^{2i/d}), \quad
        z = [\lambda \,\Vert\, \rho(\lambda)]

    Args:
        channels: the number d of sines and cosines, even.
        epsilon: scale of the eigenvalues; with 1 most channels would be nearly constant on [0, 2].
        waves: False drops the sines and cosines, for ablations.

    Shapes: input ``[q]``, output ``[q, channels + 1]``.

    Example:
        >>> EigenvalueEncoding(4)(torch.zeros(1))
        tensor([[0., 0., 1., 0., 1.]])
    """

    frequencies: Tensor

    def __init__(self, channels: int, epsilon: float = 100.0, waves: bool = True) -> None:
        super().__init__()
        check_arguments(EigenvalueEncoding, locals())
        if channels % 2:  # as models name it, which leave this check to us
            raise ConfigError(f"hidden_channels={channels} must be an even number of at least 2.")
        self.channels = channels * waves
        self.epsilon = epsilon
        self.register_derived()

    def derived(self) -> dict[str, Tensor]:
        """The frequencies, in float64 until the module is cast."""
        exponents = torch.arange(0, self.channels, 2, dtype=torch.float64) / max(self.channels, 1)
        return {"frequencies": self.epsilon / 10000.0**exponents}

    @remembered
    def forward(self, eigenvalues: Tensor) -> Tensor:
        values, frequencies, kind = eigenvalues, self.frequencies, None
        if frequencies.itemsize < 4:  # the module was cast, but angles need all bits
            values, kind = values.float(), frequencies.dtype
            frequencies = self.derived()["frequencies"]
        angles = values.unsqueeze(-1) * frequencies.to(values)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return torch.cat([values.unsqueeze(-1), waves], dim=-1).to(dtype=kind)

    def extra_repr(self) -> str:
        return f"{self.channels}, epsilon={self.epsilon}"


class WeightedAttention(nn.Module):
    r"""The heads of attention, in which each key has a weight.

    .. math::
        Z_m = \mathrm{softmax}(Q_m K_m^\top / \sqrt{d_h} + \log w)\, V_m, \quad
        Q_m = Z W^Q_m,\; K_m = Z W^K_m,\; V_m = Z W^V_m

    A key of weight w acts as w equal keys. Attention over distinct eigenvalues with their
    multiplicities is therefore attention over all eigenvalues. The scores are never stored.

    Shapes: tokens ``[..., p, channels]``, keys ``[..., r, channels]``, weights ``[r]``, or
    ``[batch, r]`` if each graph of a batch has its own; a weight of 0 leaves a key out.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.channels, self.num_heads = channels, num_heads
        self.query = Linear(channels, channels)
        self.key = Linear(channels, channels)
        self.value = Linear(channels, channels)

    def heads(self, tokens: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        """The output of every head, ``[..., heads, p, channels / heads]``."""
        return attention_heads(self.maps, self.num_heads, tokens, keys, weights)

    @property
    def maps(self) -> tuple[Linear, Linear, Linear]:
        return self.query, self.key, self.value

    def extra_repr(self) -> str:
        return f"{self.channels}, num_heads={self.num_heads}"


class MultiHeadAttention(WeightedAttention):
    r"""A linear map of the concatenated heads, :math:`[Z_1 \Vert \dots \Vert Z_M] W + b`."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__(channels, num_heads)
        self.out = Linear(channels, channels)

    def forward(self, tokens: Tensor, keys: Tensor, weights: Weights) -> Tensor:
        heads = self.heads(tokens, keys, weights)
        return self.out(heads.transpose(-2, -3).flatten(-2))


class EncoderBlock(nn.Module):
    r"""One block of the Transformer, with layer norms first: attention, then a network of width d.

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
        """MHA(LN(Z)), where Z attends to ``keys`` with these weights; None without attention."""
        if self.attention is None or self.attention_norm is None:
            return None
        normed = self.attention_norm(z)
        normed_keys = normed if keys is z else self.attention_norm(keys)
        return self.attention(normed, normed_keys, weights)

    def updated(self, z: Tensor, attended: Tensor | None) -> Tensor:
        """The block's output for its input Z and the result of :meth:`attended`."""
        z = z if attended is None else z + self.dropout(attended)
        return z + self.dropout(self.feed_forward(self.feed_forward_norm(z)))


class SpectrumEncoder(nn.Module):
    r"""Turn every eigenvalue into a vector, given all other eigenvalues: an encoding, then blocks.

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
    r"""Decode all M responses by one linear map, as in the authors' released code.

    .. math::
        [\lambda_1 \dots \lambda_M] = \hat Z W + b
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.linear = Linear(channels, num_heads)

    def forward(self, z: Tensor, keys: Tensor, weights: Weights) -> Tensor:  # noqa: ARG002
        return self.linear(z)


class HeadsDecoder(nn.Module):
    r"""Decode each response from one attention head by a shared vector, as in the paper's text.

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
        return decoded.reshape(heads.shape[:-1]).mT


class SpectralFilter(Resettable):
    r"""Maps a set of eigenvalues to M sets of new eigenvalues, :math:`[q] \to [q, M]`.

    Args:
        hidden_channels: width d of the Transformer.
        num_heads: number M of attention heads and of responses.
        num_blocks: depth of the Transformer.
        decoder: ``"joint"``: one linear map to all M responses, as in the authors' code;
            ``"heads"``: one attention head per response, as in the paper's text.
        dropout: dropout rate inside the Transformer.
        epsilon: scale of the eigenvalues in their encoding (:class:`EigenvalueEncoding`).
        encoding: False gives the Transformer the bare eigenvalues, for ablations.
        attention: False filters each eigenvalue independently of the others, for ablations.

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
        check_arguments(SpectralFilter, locals(), num_blocks=0)
        if decoder == "heads" and not attention:
            raise ConfigError(
                "attention=False needs decoder='joint': 'heads' decodes by attention."
            )
        self.hidden_channels, self.num_heads = hidden_channels, num_heads
        self.encoder = SpectrumEncoder(
            hidden_channels, num_heads, num_blocks, dropout, epsilon, encoding, attention
        )
        kind = JointDecoder if decoder == "joint" else HeadsDecoder
        self.decoder = kind(hidden_channels, num_heads)

    def forward(
        self,
        eigenvalues: Tensor | EigenvalueSet,
        landmarks: Keys | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """New eigenvalues ``[q, heads]`` for eigenvalues ``[q]``, in any order and with repeats.

        Instead of all eigenvalues, models give the tokens of :meth:`decode`.
        """
        if not isinstance(eigenvalues, EigenvalueSet):
            check_eigenvalues(eigenvalues, self.encoder.embedding.weight.dtype)
            eigenvalues, index = distinct_tokens(eigenvalues)
        return self.decode(eigenvalues, landmarks, index)

    def decode(
        self, tokens: EigenvalueSet, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> Tensor:
        """New eigenvalues ``[p, heads]`` for p tokens: distinct eigenvalues with multiplicities.

        Args:
            tokens: distinct eigenvalues and how often each occurs.
            landmarks: a few weighted points (:meth:`specformer.Spectrum.landmarks`) that replace
                the tokens as keys of attention. Attention then costs O(p·b) instead of O(p²), and
                is as accurate as the quadrature.
            index: ``[q]`` the token of every eigenvalue. With it the result is ``[q, heads]``, one
                row per eigenvalue. In training with dropout, equal eigenvalues get different rows,
                as if attention had run over all of them.
        """
        noisy = own_noise(self.encoder, index)
        if landmarks is None and noisy is None:
            z = keys = self.encoder(*tokens)
            weights = tokens.weights
        else:
            reads = isinstance(self.decoder, HeadsDecoder)
            z, keys, weights = encoded(self.encoder, tokens, landmarks, noisy, updates_keys=reads)
        new: Tensor = self.decoder(z, keys, weights)
        return new if index is None or noisy is not None else new.index_select(-2, index)

    def extra_repr(self) -> str:
        return f"{self.hidden_channels}, num_heads={self.num_heads}"
