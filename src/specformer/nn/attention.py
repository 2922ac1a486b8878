r"""Attention with weighted keys, and over fewer points: distinct eigenvalues, landmarks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from specformer.kernels.tracing import TensorCache as TensorCache
from specformer.kernels.weighted_attention import FlatSpectra, Ranges, weighted_attention
from specformer.nn.argument_checks import check_split
from specformer.nn.layers.linear import Linear, joint_linear
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Landmarks, Tokens
from specformer.spectrum.eigenpairs import distinct, singly

if TYPE_CHECKING:
    from specformer.nn.filter import Decoder, EncoderBlock, SpectrumEncoder

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


#: Distinct eigenvalues with multiplicities, of one graph or of many that follow one another.
EigenvalueSet = Tokens | FlatSpectra
_CACHE = TensorCache()


def distinct_tokens(eigenvalues: Tensor) -> tuple[Tokens, Tensor | None]:
    """Distinct eigenvalues with multiplicities, and the token of every eigenvalue ``[q]``.

    If the eigenvalues require a gradient, each is a token, because grouping has no gradient.
    """
    if eigenvalues.requires_grad:
        return singly(eigenvalues), None
    groups = distinct(eigenvalues)
    return groups.tokens, groups.index


def tokens_of(
    spectrum: AnySpectrum, landmarks: Keys | None
) -> tuple[Tokens, Keys | None, Tensor | None]:
    """The arguments of :meth:`specformer.SpectralFilter.decode` for a spectrum.

    The tokens of an :class:`specformer.ImplicitSpectrum` are its points of interpolation. If
    eigenvalues require a gradient, each is a token and attention is computed at every one, because
    neither grouping nor interpolation has a gradient.
    """
    if isinstance(spectrum, ImplicitSpectrum):
        return spectrum.points, landmarks or spectrum.tokens, None
    if spectrum.eigenvalues.requires_grad:
        keys = landmarks and Tokens(landmarks.values, landmarks.weights)
        return singly(spectrum.eigenvalues), keys, None
    return spectrum.distinct.tokens, landmarks, spectrum.distinct.index


def encoded(
    encoder: SpectrumEncoder,
    decoder: Decoder,
    tokens: EigenvalueSet,
    landmarks: Keys | None,
    index: Tensor | None,
) -> tuple[Tensor, Tensor, Weights, Tensor | None]:
    """The arguments of the decoder, and the index that still has to be applied to its output.

    With ``landmarks`` these few weighted points are the keys instead of the tokens, and the first
    block's attention is computed at their interpolation points, if they have any.

    ``index`` ``[q]`` is the token of every eigenvalue. It is returned, to be applied at the end,
    unless dropout is active. Then the representations here are expanded to all eigenvalues, and
    each has its own dropout noise: half of a graph's eigenvalues may be equal, and one noise for
    all of them would be large. Equal eigenvalues are the same until the first dropout, so the first
    block still attends over tokens.

    Shapes: representations ``[p, channels]`` or ``[q, channels]``, keys ``[r, channels]``, weights
    of the keys ``[r]``.
    """
    expanded, blocks = None, cast("list[EncoderBlock]", list(encoder.blocks))
    if index is not None and encoder.training and any(block.dropout.p > 0 for block in blocks):
        expanded, index = index, None
    if landmarks is None and expanded is None:
        z = encoder(*tokens)
        return z, z, tokens.weights, index
    z, keys, sampled = _embedded(encoder, tokens, landmarks, expanded)
    weights: Weights = tokens.weights if landmarks is None else landmarks.weights
    for number, block in enumerate(blocks):
        if number == 0:
            updated = _first_block(block, z, keys, weights, expanded, sampled)
        else:
            updated = block(z, keys, weights)
        if landmarks is None:
            keys = updated
            if expanded is not None and isinstance(weights, Tensor):
                same = len(weights) == len(expanded)  # then all weights are ones already
                weights = weights if same else weights.new_ones(len(expanded))
        elif decoder.reads_keys or number + 1 < len(blocks):
            keys = block(keys, keys, weights)
        z = updated
    return z, keys, weights, index


#: Representations at the points of landmarks ``[r, channels]``, and the matrix ``[p, r]`` that
#: interpolates from them.
Sampled = tuple[Tensor, Tensor] | None


def _first_block(
    block: EncoderBlock,
    z: Tensor,
    keys: Tensor,
    weights: Weights,
    index: Tensor | None,
    sampled: Sampled,
) -> Tensor:
    """The first block: attention at the sampled points, if any, then expanded by the index."""
    attended = block.attended(z if sampled is None else sampled[0], keys, weights)
    if sampled is not None and attended is not None:
        attended = _interpolated(sampled[1], attended)
    if index is not None:
        attended = None if attended is None else attended.index_select(-2, index)
        z = z if sampled is not None else z.index_select(-2, index)
    return block.updated(z, attended)


def _embedded(
    encoder: SpectrumEncoder,
    tokens: EigenvalueSet,
    landmarks: Keys | None,
    index: Tensor | None,
) -> tuple[Tensor, Tensor, Sampled]:
    """Embed tokens, keys and sampled points by one product.

    If there are sampled points, the tokens are already expanded by the index.
    """
    values = tokens.values
    if landmarks is None:
        z = encoder.embedding(encoder.encoding(values))
        return z, z, None
    sets = [values, landmarks.values]
    points = landmarks.points if isinstance(landmarks, Landmarks) else None
    if points is not None:
        if index is not None:
            every = index
            sets[0] = _CACHE(values, "spread", lambda: values.index_select(0, every), every)
        sets.append(points)
    joined = _CACHE(sets[0], "joined", lambda: torch.cat(sets), *sets[1:])
    parts = encoder.embedding(encoder.encoding(joined)).split([len(each) for each in sets], dim=-2)
    if points is None:
        return parts[0], parts[1], None
    matrix = cast(Landmarks, landmarks).interpolation
    assert matrix is not None
    return parts[0], parts[1], (parts[2], matrix)


def _interpolated(matrix: Tensor, values: Tensor) -> Tensor:
    """``matrix @ values``, with the runs of ``[..., r, channels]`` folded into columns."""
    lead, channels = values.shape[:-2], values.shape[-1]
    columns = values.movedim(-2, 0).reshape(values.shape[-2], -1)
    return (matrix @ columns).reshape(-1, *lead, channels).movedim(0, -2)
