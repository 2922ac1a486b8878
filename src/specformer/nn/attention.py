r"""Multi-head attention over weighted eigenvalue tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from specformer.nn import kernels
from specformer.nn.argument_checks import check_split
from specformer.nn.linear import Linear, affine
from specformer.nn.remembered import Remembered
from specformer.spectrum import Tokens

#: Upper ends of the paper's low and medium frequency bands; the high band reaches 2.
BAND_EDGES = (2.0 / 3.0, 4.0 / 3.0)
#: Names of the linear maps to queries, keys and values.
PROJECTIONS = ("query", "key", "value")
_ROWS = 1024


class Sets(NamedTuple):
    """In the place of weights: flat rows are sets of tokens, one after another, then padding.

    Args:
        offsets: ``[sets + 1]`` where each set begins.
        largest: at least the size of the largest.
    """

    offsets: Tensor
    largest: int


class PackedTokens(NamedTuple):
    """Points of many spectra, ``values`` ``[N]``, each to be attended to by those of its set."""

    values: Tensor
    weights: Sets


class WeightedAttention(nn.Module):
    r"""Attention whose keys count as often as their weights say.

    A key with weight w acts as w equal keys:
    :math:`\mathrm{softmax}_j(q_i^\top k_j / \sqrt{d_h} + \log w_j)\, v_j`. Attention over distinct
    eigenvalues with their multiplicities is therefore attention over all eigenvalues. The scores
    are never held: fused kernels compute them a block at a time.

    Shapes:
        - queries ``[..., p, channels]``, keys ``[..., r, channels]``
        - weights ``[r]``, or ``[batch, r]`` with sets of tokens of their own; a weight of 0 leaves
          a key out, as padding must be; or :class:`Sets` within ``[N, channels]`` or
          ``[runs, N, channels]``, for kernels
        - output of :meth:`heads`: ``[..., heads, p, channels / heads]``
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.channels = channels
        self.num_heads = num_heads
        self.scale = 1.0 / math.sqrt(channels // num_heads)
        self.query = Linear(channels, channels)
        self.key = Linear(channels, channels)
        self.value = Linear(channels, channels)
        self._known = Remembered()

    def heads(self, tokens: Tensor, keys: Tensor, weights: Tensor | Sets) -> Tensor:
        """The attention output of every head, before any projection."""
        packed = self._project(tokens, keys)
        if isinstance(weights, Sets):
            (joined,) = packed
            runs = joined.shape[:-4]  # whose heads attend as if they were one run's
            folded = joined.movedim(0, 2).flatten(2, 3) if runs else joined
            out = kernels.set_attention(folded, *weights, self.scale)
            out = out.unflatten(1, (*runs, -1)).movedim(1, 0) if runs else out
            return out.transpose(-2, -3)
        # Small sets in a batch have padding, whose bias of minus infinity only a mask can hold.
        if tokens.device.type == "cpu" or weights.dim() > 1:
            bias = weights.log().to(packed[0].dtype)
            return masked_attention(*_unpacked(packed), bias, self.scale)
        kind = packed[0].dtype
        if kind == torch.float32 and torch.get_float32_matmul_precision() == "medium":
            kind = torch.bfloat16
        return carried_attention(packed, weights, self.scale, kind, self._known)

    def weights(self, tokens: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        """The attention matrix itself, ``[..., heads, p, r]``: only for looking at it."""
        queries, keyed, _ = _unpacked(self._project(tokens, keys))
        bias = weights.log().to(queries.dtype)[..., None, None, :]
        return (self.scale * queries @ keyed.mT + bias).softmax(dim=-1)

    def _project(self, tokens: Tensor, keys: Tensor) -> list[Tensor]:
        """Queries, keys and values side by side, ``[..., p, 3, heads, width]``, by one product.

        Where keys are not the tokens themselves: queries, then keys and values.
        """
        maps = [self.query, self.key, self.value]
        parts = [(tokens, maps)] if keys is tokens else [(tokens, maps[:1]), (keys, maps[1:])]
        return [
            _joined(inputs, some).unflatten(-1, (len(some), self.num_heads, -1))
            for inputs, some in parts
        ]

    def extra_repr(self) -> str:
        return f"{self.channels}, num_heads={self.num_heads}"


def _joined(inputs: Tensor, maps: Sequence[Linear]) -> Tensor:
    """The outputs of several linear maps of one input, side by side."""
    if len(maps) == 1:
        return cast(Tensor, maps[0](inputs))
    weight = torch.cat([each.weight for each in maps], dim=-2)
    bias = torch.cat([cast(Tensor, each.bias) for each in maps], dim=-1)
    return affine(inputs, weight, bias)


def _unpacked(packed: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, ``[batch, heads, p, width]`` each."""
    queries, keys, values = (part.transpose(-2, -3) for each in packed for part in each.unbind(-3))
    return queries, keys, values


def masked_attention(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """Scores with ``bias`` ``[r]`` or ``[batch, r]`` added, as a mask that all queries share.

    On a CPU, where kernels round widths up, this takes 10 to 27% less time than
    :func:`carried_attention`; flash kernels on a GPU take no mask.
    """
    mask = bias[..., None, None, :].expand(*queries.shape[:-1], -1)
    return _attend(queries, keys, values, scale, mask)


def carried_attention(
    packed: Sequence[Tensor], weights: Tensor, scale: float, kind: torch.dtype, known: Remembered
) -> Tensor:
    """Attention with the logarithms of ``weights`` ``[r]`` as more key channels.

    Queries have ones there. Widths are padded to the multiple of 8 that a GPU's fused kernels ask
    for. If ``kind`` is bfloat16, the logarithms go as three numbers that add up to them, so that
    multiplicities stay exact.

    Args:
        packed: as :meth:`WeightedAttention._project` gives it.
        weights: of the keys.
        scale: of the scores.
        kind: the precision the kernel works in.
        known: where what depends on the weights alone is kept.
    """
    width = packed[0].shape[-1]
    placed = []
    for place, each in enumerate(packed):
        roles = PROJECTIONS[place : place + each.shape[-3]]
        name = (*each.shape[-4:], place, scale, kind)

        def frame(each: Tensor = each, roles: Sequence[str] = roles) -> Tensor:
            return _frame(weights, roles, each.shape, scale, kind)

        placed.append(cast(Tensor, _Placed.apply(each, known(weights, name, frame))))
    out = _attend(*_unpacked(placed), scale)
    return cast(Tensor, _Cropped.apply(out, width, packed[0].dtype))


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Fused attention ``[..., heads, p, width]``."""
    attend = nn.functional.scaled_dot_product_attention
    if queries.dim() > 3:
        return attend(queries, keys, values, attn_mask=mask, scale=scale)
    # Fused kernels want a batch axis; without it all scores are held.
    batch = None if mask is None else mask[None]
    return attend(queries[None], keys[None], values[None], attn_mask=batch, scale=scale)[0]


def _frame(
    weights: Tensor, roles: Sequence[str], shape: Sequence[int], scale: float, kind: torch.dtype
) -> Tensor:
    """What surrounds packed projections: ones, the keys' log-weights, and zeros."""
    tokens, _, heads, width = shape[-4:]
    bias = weights.log() / scale
    parts = _bfloat16_parts(bias) if kind == torch.bfloat16 else bias.unsqueeze(-1)  # [r, c]
    room = width + parts.shape[-1]
    frame = torch.zeros(
        tokens, len(roles), heads, room + -room % 8, dtype=kind, device=weights.device
    )
    for place, role in enumerate(roles):
        if role == "query":
            frame[:, place, :, width:room] = 1.0
        if role == "key":
            frame[:, place, :, width:room] = parts.unsqueeze(1).to(kind)
    return frame


class _Placed(torch.autograd.Function):
    """Packed projections ``[..., p, parts, heads, width]`` within a wider constant frame."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, frame: Tensor) -> Tensor:
        ctx.width, ctx.kind = packed.shape[-1], packed.dtype
        wide = frame.expand(*packed.shape[:-4], *frame.shape)
        out = wide.clone(memory_format=torch.contiguous_format)
        out[..., : ctx.width] = packed
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][..., : ctx.width].to(ctx.kind), None


class _Cropped(torch.autograd.Function):
    """The first channels alone, in another precision."""

    @staticmethod
    def forward(ctx: Any, wide: Tensor, width: int, kind: torch.dtype) -> Tensor:
        ctx.save_for_backward(wide)  # attention keeps it anyway; only its layout is needed
        return wide[..., :width].to(kind)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (wide,) = ctx.saved_tensors
        out = torch.zeros_like(wide)
        out[..., : gradients[0].shape[-1]] = gradients[0]
        return out, None, None


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

    def forward(self, tokens: Tensor, keys: Tensor, weights: Tensor | Sets) -> Tensor:
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
        block = attention.weights(normed[rows], normed, tokens.weights) @ bands  # [heads, rows, 3]
        shares += (bands[rows] * tokens.weights[rows, None]).mT @ block
    mass = (bands * tokens.weights[:, None]).sum(dim=0)
    # A density's weights are no whole numbers: a band may hold less than one eigenvalue.
    return shares / mass.masked_fill(mass == 0, 1.0)[:, None]
