r"""Attention within many small sets of tokens that follow one another in flat rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specformer.kernels.tracing import first_order
from specformer.kernels.triton.language import (
    blocks,
    clear_padding,
    dot_precision,
    jit,
    power_of_two,
    store_tile,
    tile,
    tl,
)

#: Queries and keys per block; most molecules fit into one.
_ROWS = 32


def block_attention(packed: Tensor, offsets: Tensor, largest: int, scale: float) -> Tensor:
    r"""Attention of every token to all tokens of its set; zeros for padding.

    .. math::
        y_i = \sum_j p_{ij} v_j, \qquad p_{ij} = e^{x_{ij} - \ell_i}, \quad
        x_{ij} = \alpha\, q_i^\top k_j, \quad \ell_i = \log \sum_j e^{x_{ij}}

    Each program takes one block of a set's queries and loops over the keys of the set. Only y and ℓ
    are stored. In the backward pass, with :math:`\partial x_{ij} = p_{ij} (g_i^\top v_j - g_i^\top
    y_i)`, it takes a block of tokens and loops over the set twice: over its queries, for
    :math:`\partial k` and :math:`\partial v`, and over its keys, for :math:`\partial q`; once if
    the set is one block. So no two programs add to the same number. Products use TF32 if
    ``torch.set_float32_matmul_precision`` allows it.

    Shapes: packed ``[N, 3, heads, width]``, queries, keys and values; offsets ``[sets + 1]``, where
    each set, of ``largest`` tokens at most, begins; output ``[N, heads, width]``.
    """
    return _BlockAttention.apply(packed, offsets, largest, scale)


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, offsets: Tensor, largest: int, scale: float) -> Tensor:
        packed = packed.contiguous()
        rows, _, heads, width = packed.shape
        out, lse = packed.new_empty(rows, heads, width), packed.new_empty(rows, heads)
        ctx.grid, ctx.scale = (len(offsets) - 1, heads, blocks(largest, _ROWS)), scale
        ctx.block = _block(width)
        _attention_forward[ctx.grid](
            packed, out, lse, offsets, rows, scale, width, num_warps=_warps(width), **ctx.block
        )
        ctx.save_for_backward(packed, offsets, out, lse)
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        packed, offsets, out, lse = ctx.saved_tensors
        of_packed, width = torch.empty_like(packed), packed.shape[-1]
        given = (packed, out, lse, gradients[0].contiguous())
        sizes = (len(packed), ctx.scale, width)
        _attention_backward[ctx.grid](
            *given, of_packed, offsets, *sizes, num_warps=2 * _warps(width), **ctx.block
        )
        return of_packed, None, None, None


def _warps(width: int) -> int:
    return max(2, power_of_two(width) // 16)


def _block(width: int) -> dict[str, Any]:
    return {
        "ROWS": _ROWS,
        "WIDTH": power_of_two(width, least=16),  # the smallest size that products support
        "PRECISION": dot_precision("ieee"),
        "num_stages": 1,  # most sets are one block, so there is nothing to prefetch
    }


@jit
def _attention_forward(
    packed,
    out,
    lse,
    offsets,
    rows,
    scale,
    width: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    own, head, heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    begin, end = tl.load(offsets + own), tl.load(offsets + own + 1)
    wide = heads * width
    queries = packed + head * width
    keys, values = queries + wide, queries + 2 * wide
    start = begin + tl.program_id(2) * ROWS
    if start < end:
        q = tile(queries, start, end, 3 * wide, width, ROWS, WIDTH)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        summed = tl.zeros([ROWS, WIDTH], tl.float32)
        for low in range(begin, end, ROWS):
            k = tile(keys, low, end, 3 * wide, width, ROWS, WIDTH)
            v = tile(values, low, end, 3 * wide, width, ROWS, WIDTH)
            x = scale * tl.dot(q, tl.trans(k), input_precision=PRECISION)
            x = tl.where((low + tl.arange(0, ROWS) < end)[None, :], x, float("-inf"))
            higher = tl.maximum(top, tl.max(x, axis=1))
            shrink = tl.exp(top - higher)
            power = tl.exp(x - higher[:, None])
            total = total * shrink + tl.sum(power, axis=1)
            summed = tl.dot(power, v, summed * shrink[:, None], input_precision=PRECISION)
            top = higher
        store_tile(
            out + head * width, summed / total[:, None], start, end, wide, width, ROWS, WIDTH
        )
        row = start + tl.arange(0, ROWS)
        tl.store(lse + row * heads + head, top + tl.log(total), mask=row < end)
    if tl.program_id(2) == 0:
        lane = tl.arange(0, WIDTH)
        column = tl.where(lane < width, head * width + lane, wide)  # past the end: masked
        clear_padding(out, offsets, own, tl.num_programs(0), rows, column, wide, ROWS)


@jit
def _query_tiles(
    packed,
    out,
    gradient,
    lse,
    start,
    end,
    head,
    heads,
    width: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Queries from ``start`` on, their outputs' gradients g, g·y, and ℓ."""
    wide = heads * width
    q = tile(packed + head * width, start, end, 3 * wide, width, ROWS, WIDTH)
    g = tile(gradient + head * width, start, end, wide, width, ROWS, WIDTH)
    y = tile(out + head * width, start, end, wide, width, ROWS, WIDTH)
    row = start + tl.arange(0, ROWS)
    level = tl.load(lse + row * heads + head, mask=row < end, other=float("inf"))
    return q, g, tl.sum(g * y, axis=1), level


@jit
def _slopes(q, k, v, g, mean, level, keys_end, scale, PRECISION: tl.constexpr):
    """Attention weights p of the keys before ``keys_end``, and gradients of their scores."""
    x = scale * tl.dot(q, tl.trans(k), input_precision=PRECISION)
    share = tl.exp(x - level[:, None])
    share = tl.where((tl.arange(0, k.shape[0]) < keys_end)[None, :], share, 0.0)
    of_share = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    return share, share * (of_share - mean[:, None])


@jit
def _attention_backward(
    packed,
    out,
    lse,
    gradient,
    of_packed,
    offsets,
    rows,
    scale,
    width: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    own, head, heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    begin, end = tl.load(offsets + own), tl.load(offsets + own + 1)
    wide = heads * width
    keys = packed + head * width + wide
    start = begin + tl.program_id(2) * ROWS
    if start < end:
        place = of_packed + head * width
        k = tile(keys, start, end, 3 * wide, width, ROWS, WIDTH)
        v = tile(keys + wide, start, end, 3 * wide, width, ROWS, WIDTH)
        of_k = tl.zeros([ROWS, WIDTH], tl.float32)
        of_v = tl.zeros([ROWS, WIDTH], tl.float32)
        of_q = tl.zeros([ROWS, WIDTH], tl.float32)
        for low in range(begin, end, ROWS):
            q, g, mean, level = _query_tiles(
                packed, out, gradient, lse, low, end, head, heads, width, ROWS, WIDTH
            )
            share, slope = _slopes(q, k, v, g, mean, level, end - start, scale, PRECISION)
            of_v = tl.dot(tl.trans(share), g, of_v, input_precision=PRECISION)
            of_k = tl.dot(tl.trans(slope), q, of_k, input_precision=PRECISION)
            of_q = tl.where(low == start, tl.dot(slope, k, input_precision=PRECISION), of_q)
        store_tile(place + wide, scale * of_k, start, end, 3 * wide, width, ROWS, WIDTH)
        store_tile(place + 2 * wide, of_v, start, end, 3 * wide, width, ROWS, WIDTH)
        if end - begin > ROWS:
            q, g, mean, level = _query_tiles(
                packed, out, gradient, lse, start, end, head, heads, width, ROWS, WIDTH
            )
            for low in range(begin, end, ROWS):
                k = tile(keys, low, end, 3 * wide, width, ROWS, WIDTH)
                v = tile(keys + wide, low, end, 3 * wide, width, ROWS, WIDTH)
                _, slope = _slopes(q, k, v, g, mean, level, end - low, scale, PRECISION)
                slope = tl.where(low == start, 0.0, slope)  # already counted
                of_q = tl.dot(slope, k, of_q, input_precision=PRECISION)
        store_tile(place, scale * of_q, start, end, 3 * wide, width, ROWS, WIDTH)
    if tl.program_id(2) == 0:
        lane = tl.arange(0, WIDTH)
        for part in tl.static_range(3):
            column = tl.where(lane < width, part * wide + head * width + lane, 3 * wide)
            clear_padding(of_packed, offsets, own, tl.num_programs(0), rows, column, 3 * wide, ROWS)
