r"""What the filter attends over: distinct eigenvalues or landmarks, and its encoder there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specformer.kernels.tracing import TensorCache
from specformer.kernels.weighted_attention import FlatSpectra
from specformer.nn.layers.attention import Weights
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Landmarks, Tokens
from specformer.spectrum.eigenpairs import distinct, singly

if TYPE_CHECKING:
    from specformer.nn.filter import EncoderBlock, SpectrumEncoder

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


def own_noise(encoder: SpectrumEncoder, index: Tensor | None) -> Tensor | None:
    """The token of every eigenvalue, if each is to have its own dropout noise; else None.

    Half of a graph's eigenvalues may be equal, and one noise for all of them would be large.
    """
    blocks = cast("list[EncoderBlock]", list(encoder.blocks))
    return index if encoder.training and any(block.dropout.p > 0 for block in blocks) else None


def encoded(
    encoder: SpectrumEncoder,
    tokens: EigenvalueSet,
    landmarks: Keys | None,
    index: Tensor | None = None,
    *,
    updates_keys: bool = False,
) -> tuple[Tensor, Tensor, Weights]:
    """The encoder's output, the keys that it attended to, and the keys' weights.

    With ``landmarks`` these few weighted points are the keys instead of the tokens, and the first
    block's attention is computed at their interpolation points, if they have any. The last block
    only updates them on demand.

    With ``index`` ``[q]``, the token of every eigenvalue, the output has one row per eigenvalue,
    each with its own dropout noise. Equal eigenvalues are the same until the first dropout, so the
    first block still attends over tokens.

    Shapes: output ``[p, channels]`` or ``[q, channels]``, keys ``[r, channels]``, weights ``[r]``.
    """
    z, keys, sampled = _embedded(encoder, tokens, landmarks, index)
    weights: Weights = tokens.weights if landmarks is None else landmarks.weights
    blocks = cast("list[EncoderBlock]", list(encoder.blocks))
    for number, block in enumerate(blocks):
        if number == 0:
            updated = _first_block(block, z, keys, weights, index, sampled)
        else:
            updated = block(z, keys, weights)
        if landmarks is None:
            keys = updated
            if index is not None and isinstance(weights, Tensor):
                same = len(weights) == len(index)  # then all weights are ones already
                weights = weights if same else weights.new_ones(len(index))
        elif updates_keys or number + 1 < len(blocks):
            keys = block(keys, keys, weights)
        z = updated
    return z, keys, weights


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
