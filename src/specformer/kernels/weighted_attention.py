r"""Attention with weighted keys, which never stores the matrix of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from specformer.kernels.tracing import TensorCache

#: Order of the parts in packed projections.
_ROLES = ("query", "key", "value")
#: The frames of :func:`carried_attention`, which depend on the weights and on shapes alone.
_FRAMES = TensorCache()


class Ranges(NamedTuple):
    """Boundaries of many token sets that follow one another in flat rows, with padding at the end.

    They take the place of weights: a token attends to its own set only.

    Args:
        offsets: ``[sets + 1]`` the start of each set.
        largest: the size of the largest set, or an upper bound.
    """

    offsets: Tensor
    largest: int


class FlatSpectra(NamedTuple):
    """Eigenvalues ``[N]`` of many graphs, one graph after another, and the graphs' boundaries."""

    values: Tensor
    weights: Ranges


def weighted_attention(packed: Sequence[Tensor], weights: Tensor | Ranges, scale: float) -> Tensor:
    r"""The output of each head, :math:`\mathrm{softmax}_j(\alpha\, q_i^\top k_j + \log w_j)\, v_j`.

    Args:
        packed: one tensor of queries, keys and values ``[..., p, 3, heads, width]``; or two
            tensors, one of queries and one of keys and values.
        weights: w ``[r]``, or ``[batch, r]`` if each item of a batch has its own tokens. A weight
            of 0 leaves a key out; padding needs it. Or :class:`Ranges`, for a fused kernel.
        scale: α.

    Shapes: output ``[..., heads, p, width]``.
    """
    if isinstance(weights, Ranges):
        return _within_ranges(packed[0], weights, scale)
    # Padding has a bias of minus infinity, which only a mask can hold.
    if packed[0].device.type == "cpu" or weights.dim() > 1:
        bias = weights.log().to(packed[0].dtype)
        return masked_attention(*apart(packed), bias, scale)
    kind = packed[0].dtype
    if kind == torch.float32 and torch.get_float32_matmul_precision() == "medium":
        kind = torch.bfloat16
    return carried_attention(packed, weights, scale, kind)


def _within_ranges(packed: Tensor, ranges: Ranges, scale: float) -> Tensor:
    from specformer.kernels.triton.block_attention import block_attention

    runs = packed.shape[:-4]  # the heads of all runs are treated as heads of one run
    folded = packed.movedim(0, 2).flatten(2, 3) if runs else packed
    out = block_attention(folded, *ranges, scale)
    out = out.unflatten(1, (*runs, -1)).movedim(1, 0) if runs else out
    return out.transpose(-2, -3)


def apart(packed: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Unpack queries, keys and values, ``[batch, heads, p, width]`` each."""
    queries, keys, values = (part.transpose(-2, -3) for each in packed for part in each.unbind(-3))
    return queries, keys, values


def masked_attention(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """Attention with ``bias`` ``[r]`` or ``[batch, r]`` added to the scores as a mask.

    On a CPU this takes 10 to 27% less time than :func:`carried_attention`, because kernels round
    widths up. Flash kernels on a GPU take no mask.
    """
    mask = bias[..., None, None, :].expand(*queries.shape[:-1], -1)
    return _attend(queries, keys, values, scale, mask)


def carried_attention(
    packed: Sequence[Tensor], weights: Tensor, scale: float, kind: torch.dtype
) -> Tensor:
    """Attention with the logarithms of ``weights`` ``[r]`` as additional key channels.

    Queries have ones in these channels. Widths are padded to a multiple of 8, which a GPU's fused
    kernels require. ``kind`` is the precision that the kernel computes in. In bfloat16 each
    logarithm becomes a sum of three numbers, so that multiplicities stay exact. The other arguments
    are those of :func:`weighted_attention`.
    """
    width = packed[0].shape[-1]
    placed = []
    for place, each in enumerate(packed):
        roles = _ROLES[place : place + each.shape[-3]]
        name = (*each.shape[-4:], place, scale, kind)

        def frame(each: Tensor = each, roles: Sequence[str] = roles) -> Tensor:
            return _frame(weights, roles, each.shape, scale, kind)

        placed.append(cast(Tensor, _Placed.apply(each, _FRAMES(weights, name, frame))))
    out = _attend(*apart(placed), scale)
    return _Cropped.apply(out, width, packed[0].dtype)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Fused attention ``[..., heads, p, width]``."""
    attend = nn.functional.scaled_dot_product_attention
    if queries.dim() > 3:
        return attend(queries, keys, values, attn_mask=mask, scale=scale)
    # Fused kernels need a batch axis; without it PyTorch stores all scores.
    batch = None if mask is None else mask[None]
    return attend(queries[None], keys[None], values[None], attn_mask=batch, scale=scale)[0]


def _frame(
    weights: Tensor, roles: Sequence[str], shape: Sequence[int], scale: float, kind: torch.dtype
) -> Tensor:
    """The constant that packed projections are copied into: ones, log-weights and zeros."""
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
    """Copy packed projections ``[..., p, parts, heads, width]`` into a wider constant frame."""

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
    """The first ``width`` channels, cast to ``kind``."""

    @staticmethod
    def forward(ctx: Any, wide: Tensor, width: int, kind: torch.dtype) -> Tensor:
        ctx.save_for_backward(wide)  # only for its layout; attention stores it anyway
        return wide[..., :width].to(kind)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (wide,) = ctx.saved_tensors
        out = torch.zeros_like(wide)
        out[..., : gradients[0].shape[-1]] = gradients[0]
        return out, None, None


def _bfloat16_parts(numbers: Tensor) -> Tensor:
    """Split numbers ``[r]`` into three each that bfloat16 holds exactly, ``[r, 3]``."""
    parts = []
    for _ in range(3):
        parts.append(numbers.bfloat16().to(numbers.dtype))
        numbers = numbers - parts[-1]
    return torch.stack(parts, dim=-1)
