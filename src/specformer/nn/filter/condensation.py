r"""Which frequencies attend to which (paper, App. "Condensation of self-attention")."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.kernels.weighted_attention import apart
from specformer.nn.filter.attention import WeightedAttention
from specformer.nn.filter.encoder import EncoderBlock, SpectrumEncoder
from specformer.nn.layers.attend import projected, scale_of
from specformer.spectrum import Tokens

#: Upper ends of the paper's low and medium frequency bands; the high band reaches 2.
BAND_EDGES = (2.0 / 3.0, 4.0 / 3.0)
_ROWS = 1024


def condensed_attention(
    encoder: SpectrumEncoder, tokens: Tokens, block: int = 0, frequencies: Tensor | None = None
) -> Tensor:
    """One block's attention between low, medium and high frequencies, ``[heads, 3, 3]``.

    No heads without attention. ``frequencies`` as in :func:`condense`.
    """
    hidden = encoder.embedding(encoder.encoding(tokens.values))
    for earlier in encoder.blocks[:block]:
        hidden = earlier(hidden, hidden, tokens.weights)
    chosen = cast(EncoderBlock, encoder.blocks[block]) if encoder.blocks else None
    if chosen is None or chosen.attention is None or chosen.attention_norm is None:
        return cast(Tensor, hidden.new_empty(0, 3, 3))
    return condense(chosen.attention, chosen.attention_norm(hidden), tokens, frequencies)


def attention_matrix(
    attention: WeightedAttention, tokens: Tensor, keys: Tensor, weights: Tensor
) -> Tensor:
    """The attention matrix itself, ``[..., heads, p, r]``: only for looking at it."""
    maps = (attention.query, attention.key, attention.value)
    packed = projected(maps, attention.num_heads, tokens, keys)
    queries, keyed, _ = apart(packed)
    bias = weights.log().to(queries.dtype)[..., None, None, :]
    return (scale_of(packed) * queries @ keyed.mT + bias).softmax(dim=-1)


def band_of(eigenvalues: Tensor) -> Tensor:
    """0, 1 or 2 for the bands [0, 2/3), [2/3, 4/3) and [4/3, 2].

    Example:
        >>> band_of(torch.tensor([0.0, 1.0, 2.0])).tolist()
        [0, 1, 2]
    """
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

    computed a block of rows at a time. Multiplicities count in both sums. A band without
    eigenvalues has a row of zeros. ``frequencies`` are what the bands are cut from, where these
    are not the tokens' values.

    Shapes: ``normed`` ``[p, channels]`` the block's normalised input; returns ``[heads, 3, 3]``.
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
    # A density's weights are not whole numbers: a band may hold less than one eigenvalue.
    return shares / mass.masked_fill(mass == 0, 1.0)[:, None]
