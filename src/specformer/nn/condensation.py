r"""Which frequencies look at which: attention matrices, and their sums over frequency bands."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.kernels.weighted_attention import apart
from specformer.nn.filter import EncoderBlock, SpectrumEncoder, WeightedAttention
from specformer.nn.layers.attention import head_scale, projected
from specformer.spectrum import Tokens

#: Upper ends of the paper's low and medium frequency bands; the high band reaches 2.
BAND_EDGES = (2.0 / 3.0, 4.0 / 3.0)
_ROWS = 1024


def condensed_attention(
    encoder: SpectrumEncoder, tokens: Tokens, frequencies: Tensor | None = None
) -> Tensor:
    """The first block's attention between low, medium and high frequencies, ``[heads, 3, 3]``.

    The result has no heads if the encoder has no attention. See :func:`condense` for
    ``frequencies``.
    """
    found = first_attention(encoder, tokens)
    if found is None:
        return tokens.values.new_empty(0, 3, 3)
    return condense(*found, tokens, frequencies)


def first_attention(
    encoder: SpectrumEncoder, tokens: Tokens
) -> tuple[WeightedAttention, Tensor] | None:
    """The first block's attention and its input ``[p, channels]``; None without attention."""
    first = cast(EncoderBlock, encoder.blocks[0]) if encoder.blocks else None
    if first is None or first.attention is None or first.attention_norm is None:
        return None
    return first.attention, first.attention_norm(encoder.embedding(encoder.encoding(tokens.values)))


def attention_matrix(
    attention: WeightedAttention, tokens: Tensor, keys: Tensor, weights: Tensor
) -> Tensor:
    """The attention matrix ``[..., heads, p, r]``, for inspection only."""
    packed = projected(attention.maps, attention.num_heads, tokens, keys)
    queries, keyed, _ = apart(packed)
    bias = weights.log().to(queries.dtype)[..., None, None, :]
    return (head_scale(packed[0]) * queries @ keyed.mT + bias).softmax(dim=-1)


def band_of(eigenvalues: Tensor) -> Tensor:
    """0, 1 or 2 for the bands [0, 2/3), [2/3, 4/3) and [4/3, 2]."""
    edges = torch.tensor(BAND_EDGES, dtype=eigenvalues.dtype, device=eigenvalues.device)
    return torch.bucketize(eigenvalues, edges, right=True)


def condense(
    attention: WeightedAttention,
    normed: Tensor,
    tokens: Tokens,
    frequencies: Tensor | None = None,
) -> Tensor:
    r"""The attention matrix summed over three frequency bands (paper, App. "Condensation").

    .. math::
        \hat B_{ij} = \frac{1}{|f_i|}\sum_{\lambda_p \in f_i}\sum_{\lambda_q \in f_j} B_{pq}

    Both sums count multiplicities. A band without eigenvalues has a row of zeros. The matrix is
    computed in blocks of rows. ``frequencies`` are used instead of the tokens' values to assign
    tokens to bands.

    Shapes: ``normed`` ``[p, channels]``, the block's normalised input; output ``[heads, 3, 3]``.
    """
    places = band_of(tokens.values if frequencies is None else frequencies)
    bands = nn.functional.one_hot(places, 3).to(normed.dtype)
    shares = normed.new_zeros(attention.num_heads, 3, 3)
    for start in range(0, len(tokens.values), _ROWS):
        rows = slice(start, start + _ROWS)
        matrix = attention_matrix(attention, normed[rows], normed, tokens.weights)
        block = matrix @ bands  # [heads, rows, 3]
        shares += (bands[rows] * tokens.weights[rows, None]).mT @ block
    mass = (bands * tokens.weights[:, None]).sum(dim=0)
    # The weights of a density are not whole numbers, so that a band may have a mass below 1.
    return shares / mass.masked_fill(mass == 0, 1.0)[:, None]
