r"""Fewer points for attention to run over: distinct eigenvalues, landmarks, and interpolation."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specformer.kernels.weighted_attention import FlatSpectra
from specformer.nn.layers.fast_paths import Remembered, Weights
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Landmarks, Tokens
from specformer.spectrum.eigenpairs import distinct, singly

if TYPE_CHECKING:
    from specformer.nn.filter import Decoder, EncoderBlock, SpectrumEncoder

#: Distinct eigenvalues with multiplicities; of one graph, or of many that follow one another.
EigenvalueSet = Tokens | FlatSpectra
#: Eigenvalues joined or spread, of tensors that stay as they are.
_KNOWN = Remembered()


def is_noisy(encoder: SpectrumEncoder) -> bool:
    """Whether dropout is at work: equal eigenvalues then have different representations."""
    dropouts = (cast("EncoderBlock", block).dropout for block in encoder.blocks)
    return encoder.training and any(dropout.p > 0 for dropout in dropouts)


def grouped(eigenvalues: Tensor) -> tuple[Tokens, Tensor | None]:
    """Distinct eigenvalues with multiplicities, and each eigenvalue's place among them ``[q]``.

    Those that ask for a gradient are taken singly: finding equal ones has no gradient.
    """
    if eigenvalues.requires_grad:
        return singly(eigenvalues), None
    groups = distinct(eigenvalues)
    return groups.tokens, groups.index


def tokens_of(
    spectrum: AnySpectrum, landmarks: Keys | None
) -> tuple[Tokens, Keys | None, Tensor | None]:
    """A spectrum as the arguments of :meth:`specformer.SpectralFilter.decode`.

    Without a decomposition these are the points of interpolation. Eigenvalues that ask for a
    gradient are taken singly, and attention is computed at all of them, whatever points landmarks
    have: finding equal ones has no gradient, and neither has interpolation, whose matrix is fixed.
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
    """The arguments of the decoder, and the index that its output has still to be spread by.

    Under dropout equal eigenvalues differ, so that the encoder spreads the tokens itself.
    """
    if index is not None and is_noisy(encoder):
        spread, index = index, None
    else:
        spread = None
    if landmarks is None and spread is None:
        z = encoder(*tokens)
        return z, z, tokens.weights, index
    apart = encode_apart(encoder, tokens, landmarks, spread, last_keys=decoder.reads_keys)
    return *apart, index


def encode_apart(
    encoder: SpectrumEncoder,
    tokens: EigenvalueSet,
    landmarks: Keys | None,
    index: Tensor | None,
    *,
    last_keys: bool,
) -> tuple[Tensor, Tensor, Weights]:
    """What the encoder makes of the tokens and of the keys they attend to, and the keys' weights.

    With ``landmarks`` the keys are those few weighted points instead of the tokens, and the first
    block's attention is computed at their points, if they have any. With ``index`` ``[q]`` every
    eigenvalue is represented, not every token, and each has dropout noise of its own: half of a
    graph's eigenvalues may be equal, and one noise for all would be a large one. Nothing tells
    equal eigenvalues apart before the first dropout, so the first block attends over tokens. The
    last block updates landmarks only if ``last_keys`` are asked for: not every decoder reads them.

    Shapes: ``[p, channels]`` or ``[q, channels]``, ``[r, channels]``, ``[r]``.
    """
    z, keys, sampled = _embedded(encoder, tokens, landmarks, index)
    weights: Weights = tokens.weights if landmarks is None else landmarks.weights
    for number, block in enumerate(cast("list[EncoderBlock]", list(encoder.blocks))):
        if number == 0:
            updated = _first(block, z, keys, weights, index, sampled)
        else:
            updated = block(z, keys, weights)
        if landmarks is None:
            keys = updated
            if index is not None and isinstance(weights, Tensor) and len(weights) != len(index):
                weights = weights.new_ones(len(index))
        elif last_keys or number + 1 < len(encoder.blocks):
            keys = block(keys, keys, weights)
        z = updated
    return z, keys, weights


#: Representations at the points of landmarks ``[r, channels]``, and the matrix ``[p, r]`` that
#: interpolates from them.
Sampled = tuple[Tensor, Tensor] | None


def _first(
    block: EncoderBlock,
    z: Tensor,
    keys: Tensor,
    weights: Weights,
    index: Tensor | None,
    sampled: Sampled,
) -> Tensor:
    """The first block: attention at the points, if any, then at every entry of the index."""
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
    """Embedded tokens, keys and sampled points, all by one product.

    Beside points, the tokens are already those of every entry of the index.
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
            sets[0] = _KNOWN(values, "spread", lambda: values.index_select(0, every), every)
        sets.append(points)
    joined = _KNOWN(sets[0], "joined", lambda: torch.cat(sets), *sets[1:])
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
