r"""Pairs of nodes gated by their two nodes, in one pass over all pairs in each direction.

The order of pairs is that of :mod:`specformer.kernels.triton.pair_sum`: the pairs of a target are
contiguous, those of a source are n apart in a graph of n nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specformer.kernels.segments import PairIndex
from specformer.kernels.tracing import first_order
from specformer.kernels.triton.language import clear_padding, jit, tl
from specformer.kernels.triton.pair_sum import FORWARD


def gated_pairs(ends: Tensor, own: Tensor, index: PairIndex) -> Tensor:
    r""":math:`\rho((q_i + k_j) g_{ij}) + b_{ij}` of all pairs of nodes of a graph.

    With :math:`\rho(x) = x / \sqrt{1 + |x|}`. In plain PyTorch, the values of both nodes would be
    written and read once more, and so would their gradients.

    Shapes: ends ``[N, 2 * channels]`` (q, k), own ``[P, 2 * channels]`` (g, b), output
    ``[P, channels]``, zeros for padding.
    """
    return _Gated.apply(ends, own, index)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ends: Tensor, own: Tensor, index: PairIndex) -> Tensor:
        ends, own = ends.contiguous(), own.contiguous()
        out = own.new_empty(len(own), own.shape[1] // 2)
        _forward[_grid(ends, out)](ends, own, out, *_where(index), *_sizes(ends, out), **_tile(out))
        ctx.save_for_backward(ends, own)
        ctx.index = index
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        ends, own = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_ends, of_own = torch.empty_like(ends), torch.empty_like(own)
        where, sizes = _where(ctx.index), _sizes(ends, gradient)
        grid, tile = _grid(ends, gradient), _tile(gradient)
        _of_targets[grid](ends, own, gradient, of_ends, of_own, *where, *sizes, **tile)
        _of_sources[grid](ends, own, gradient, of_ends, *where, sizes[-1], **tile)
        return of_ends, of_own, None


def _where(index: PairIndex) -> tuple[Tensor, Tensor]:
    return index.offsets, index.first


def _sizes(ends: Tensor, pairs: Tensor) -> tuple[int, int, int]:
    return len(ends), *pairs.shape


def _grid(ends: Tensor, pairs: Tensor) -> tuple[int, int]:
    return FORWARD.grid(ends[:, : pairs.shape[1]])


def _tile(pairs: Tensor) -> dict[str, int]:
    return FORWARD.options(pairs)


@jit
def _root_slope(x):
    """The derivative of ρ, (1 + |x| / 2) / (1 + |x|)^(3/2)."""
    each = tl.rsqrt(1.0 + tl.abs(x))
    return (1.0 + 0.5 * tl.abs(x)) * each * each * each


@jit
def _factors(ends, own, q, pair, source, end, column, channels):
    """The factors q + k and g of the pairs of one target, the position of g, and its mask."""
    mask = (pair < end)[:, None] & (column < channels)[None, :]
    at_source = source[:, None] * 2 * channels + channels + column[None, :]
    k = tl.load(ends + at_source, mask=mask, other=0.0)
    at = pair[:, None] * 2 * channels + column[None, :]
    return q[None, :] + k, tl.load(own + at, mask=mask, other=0.0), at, mask


@jit
def _forward(
    ends,
    own,
    out,
    offsets,
    first,
    targets,
    pairs,
    channels,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """All pairs of one target and block of columns, and zeros for padding."""
    target = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    source = tl.load(first + target)
    q = tl.load(ends + target * 2 * channels + column, mask=inside, other=0.0)
    for start in range(begin, end, ROWS):
        pair = start + tl.arange(0, ROWS)
        both, g, at, mask = _factors(
            ends, own, q, pair, source + pair - begin, end, column, channels
        )
        b = tl.load(own + at + channels, mask=mask, other=0.0)
        x = both * g
        root = x * tl.rsqrt(1.0 + tl.abs(x))
        tl.store(out + pair[:, None] * channels + column[None, :], root + b, mask=mask)
    clear_padding(out, offsets, target, targets, pairs, column, channels, ROWS)


@jit
def _of_targets(
    ends,
    own,
    gradient,
    of_ends,
    of_own,
    offsets,
    first,
    targets,
    pairs,
    channels,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients of q of one target and of g and b of its pairs, and zeros for padding."""
    target = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    source = tl.load(first + target)
    place = target * 2 * channels + column
    q = tl.load(ends + place, mask=inside, other=0.0)
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(begin, end, ROWS):
        pair = start + tl.arange(0, ROWS)
        both, g, at, mask = _factors(
            ends, own, q, pair, source + pair - begin, end, column, channels
        )
        of = pair[:, None] * channels + column[None, :]
        of_b = tl.load(gradient + of, mask=mask, other=0.0)
        of_x = of_b * _root_slope(both * g)
        total += tl.sum(of_x * g, axis=0)
        tl.store(of_own + at, of_x * both, mask=mask)
        tl.store(of_own + at + channels, of_b, mask=mask)
    tl.store(of_ends + place, total, mask=inside)
    # A block of columns may reach into the second half, which holds zeros in padding as well.
    clear_padding(of_own, offsets, target, targets, pairs, column, 2 * channels, ROWS)
    clear_padding(of_own, offsets, target, targets, pairs, column + channels, 2 * channels, ROWS)


@jit
def _of_sources(
    ends,
    own,
    gradient,
    of_ends,
    offsets,
    first,
    channels,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients of k of one source and block of columns."""
    source = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    begin = tl.load(offsets + source)
    size = tl.load(offsets + source + 1) - begin
    row = tl.load(first + source)
    corner = begin - (source - row) * (size - 1)
    place = source * 2 * channels + channels + column
    k = tl.load(ends + place, mask=inside, other=0.0)
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, size, ROWS):
        i = start + tl.arange(0, ROWS)
        mask = (i < size)[:, None] & inside[None, :]
        pair = corner + i * size
        g = tl.load(own + pair[:, None] * 2 * channels + column[None, :], mask=mask, other=0.0)
        q = tl.load(
            ends + (row + i)[:, None] * 2 * channels + column[None, :], mask=mask, other=0.0
        )
        at = pair[:, None] * channels + column[None, :]
        of_x = tl.load(gradient + at, mask=mask, other=0.0) * _root_slope((q + k[None, :]) * g)
        total += tl.sum(of_x * g, axis=0)
    tl.store(of_ends + place, total, mask=inside)
