r"""Multi-head attention over weighted eigenvalue tokens."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.linear import Linear
from specformer.spectrum import Tokens

#: Upper ends of the paper's low and medium frequency bands; the high band reaches 2.
BAND_EDGES = (2.0 / 3.0, 4.0 / 3.0)
#: Names of the linear maps to queries, keys and values.
PROJECTIONS = ("query", "key", "value")
_ROWS = 1024


class WeightedAttention(nn.Module):
    r"""Attention whose keys count as often as their weights say.

    A key with weight w acts as w equal keys:
    :math:`\mathrm{softmax}_j(q_i^\top k_j / \sqrt{d_h} + \log w_j)\, v_j`. Attention over distinct
    eigenvalues with their multiplicities is therefore attention over all eigenvalues. The scores
    are never held: fused kernels compute them a block at a time.

    Shapes:
        - queries ``[..., p, channels]``, keys ``[..., r, channels]``
        - weights ``[r]``, or ``[batch, r]`` with sets of tokens of their own; a weight of 0 leaves
          a key out, as padding must be
        - output of :meth:`heads`: ``[..., heads, p, channels / heads]``
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        if num_heads < 1 or channels % num_heads:
            raise ConfigError(
                f"hidden_channels={channels} cannot be split evenly over num_heads={num_heads}."
            )
        self.channels = channels
        self.num_heads = num_heads
        self.query = Linear(channels, channels)
        self.key = Linear(channels, channels)
        self.value = Linear(channels, channels)

    def heads(self, tokens: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        """The attention output of every head, before any projection."""
        queries, keyed, values = self._project(tokens, keys)
        if queries.dim() == 3:  # fused kernels want a batch axis; without it all scores are held
            return _attend(queries[None], keyed[None], values[None], weights)[0]
        return _attend(queries, keyed, values, weights)

    def weights(self, tokens: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        """The attention matrix itself, ``[..., heads, p, r]``: only for looking at it."""
        queries, keyed, _ = self._project(tokens, keys)
        bias = weights.log().to(queries.dtype)[..., None, None, :]
        return (queries @ keyed.mT + bias).softmax(dim=-1)

    def _project(self, tokens: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        width = self.channels // self.num_heads
        query, key, value = (
            projected.unflatten(-1, (self.num_heads, width)).transpose(-2, -3)
            for projected in (self.query(tokens), self.key(keys), self.value(keys))
        )
        return query * width**-0.5, key, value

    def extra_repr(self) -> str:
        return f"{self.channels}, num_heads={self.num_heads}"


def _attend(queries: Tensor, keys: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Fused attention ``[batch, heads, p, width]`` with log-weights added to the scores."""
    bias = weights.log().to(queries.dtype)
    # Small sets in a batch have padding, whose bias of minus infinity only a mask can hold.
    masked = queries.device.type == "cpu" or bias.dim() > 1
    attend = masked_attention if masked else carried_attention
    return attend(queries, keys, values, bias)


def masked_attention(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Scores with ``bias`` ``[r]`` or ``[batch, r]`` added, as a mask that all queries share.

    On a CPU, where kernels round widths up, this takes 10 to 27% less time than
    :func:`carried_attention`; flash kernels on a GPU take no mask.
    """
    mask = bias[..., None, None, :].expand(*queries.shape[:-1], -1)
    return nn.functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, scale=1.0
    )


def carried_attention(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Scores with ``bias`` ``[r]`` added, as more key channels against queries of one.

    Widths are padded to the multiple of 8 that a GPU's fused kernels ask for. Where PyTorch's
    ``torch.set_float32_matmul_precision("medium")`` allows it, the kernel works in bfloat16; the
    bias then goes as three numbers that add up to it, so that multiplicities stay exact.
    """
    width = values.shape[-1]
    brief = queries.dtype == torch.float32 and torch.get_float32_matmul_precision() == "medium"
    parts = _bfloat16_parts(bias) if brief else bias.unsqueeze(-1)  # [r, channels]
    padding = -(width + parts.shape[-1]) % 8
    ones = queries.new_ones(()).expand(*queries.shape[:-1], parts.shape[-1])
    operands = (
        nn.functional.pad(torch.cat([queries, ones], dim=-1), (0, padding)),
        nn.functional.pad(
            torch.cat([keys, parts.expand(*keys.shape[:-1], -1)], dim=-1), (0, padding)
        ),
        nn.functional.pad(values, (0, padding + parts.shape[-1])),
    )
    if brief:
        operands = tuple(operand.bfloat16() for operand in operands)  # type: ignore[assignment]
    out = nn.functional.scaled_dot_product_attention(*operands, scale=1.0)
    return out[..., :width].to(values.dtype)


def _bfloat16_parts(numbers: Tensor) -> Tensor:
    """Numbers ``[r]`` as sums of three that bfloat16 holds exactly, ``[r, 3]``.

    Example:
        >>> _bfloat16_parts(torch.tensor([6.9077554])).sum(dim=-1).tolist()
        [6.9077554]
    """
    parts = []
    for _ in range(3):
        parts.append(numbers.bfloat16().to(numbers.dtype))
        numbers = numbers - parts[-1]
    return torch.stack(parts, dim=-1)


class SelfAttention(WeightedAttention):
    """:class:`WeightedAttention` with the usual output projection of the concatenated heads."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__(channels, num_heads)
        self.out = Linear(channels, channels)

    def forward(self, tokens: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        heads = self.heads(tokens, keys, weights)
        return cast(Tensor, self.out(heads.transpose(-2, -3).flatten(-2)))


def band_of(eigenvalues: Tensor) -> Tensor:
    """0, 1 or 2 for the bands [0, 2/3), [2/3, 4/3) and [4/3, 2].

    Example:
        >>> band_of(torch.tensor([0.0, 1.0, 2.0])).tolist()
        [0, 1, 2]
    """
    edges = torch.tensor(BAND_EDGES, dtype=eigenvalues.dtype, device=eigenvalues.device)
    return torch.bucketize(eigenvalues, edges, right=True)


def condense(attention: WeightedAttention, normed: Tensor, tokens: Tokens) -> Tensor:
    r"""The attention matrix summed over three frequency bands (paper, App. "Condensation").

    .. math::
        \hat B_{ij} = \frac{1}{|f_i|}\sum_{\lambda_p \in f_i}\sum_{\lambda_q \in f_j} B_{pq}

    computed a block of rows at a time. Multiplicities count in both sums. A band without
    eigenvalues has a row of zeros.

    Shapes: ``normed`` ``[p, channels]`` the block's normalised input; returns ``[heads, 3, 3]``.
    """
    bands = nn.functional.one_hot(band_of(tokens.values), 3).to(normed.dtype)
    shares = normed.new_zeros(attention.num_heads, 3, 3)
    for start in range(0, len(tokens.values), _ROWS):
        rows = slice(start, start + _ROWS)
        block = attention.weights(normed[rows], normed, tokens.weights) @ bands  # [heads, rows, 3]
        shares += (bands[rows] * tokens.weights[rows, None]).mT @ block
    mass = (bands * tokens.weights[:, None]).sum(dim=0)
    return shares / mass.clamp_min(1.0)[:, None]
