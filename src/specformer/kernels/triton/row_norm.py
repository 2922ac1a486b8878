r"""Layer normalisation of many short rows, with or without a run axis."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from specformer.kernels.tracing import first_order
from specformer.kernels.triton.language import blocks, jit, power_of_two, store_tile, tile, tl

#: Numbers read at once: four reads of 16 bytes for each of 128 threads.
_NUMBERS = 2048
#: Programs that keep a GPU of 132 multiprocessors busy; more would leave more parts to add.
_PROGRAMS = 512


def normalised_rows(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    r"""Layer normalisation: rows with mean 0 and variance 1, then a run's scale and shift.

    .. math::
        y = w \odot \hat x + b, \qquad \hat x = (x - \mu) / \sqrt{v + \varepsilon}

    μ and v are those of a row, v from squares about μ. They are not stored, because the backward
    pass holds whole rows too and computes them again. There, with :math:`h = w \odot g`,

    .. math::
        \partial x = \bigl(h - \overline{h} - \hat x\, \overline{h \odot \hat x}\bigr)
        / \sqrt{v + \varepsilon}

    and every program sums :math:`g \odot \hat x` and g over its rows, for weight and bias.
    Shapes are those of :func:`specformer.kernels.norms.layer_norm`.
    """
    if weight.numel() == x.shape[-1]:
        shape = x.shape if x.dim() > weight.dim() else (1, *x.shape)
        rows = x.reshape(1, -1, x.shape[-1])
    else:  # an input shared by all runs is not copied: its stride is zero
        shape = (*x.shape[:-3], len(weight), *x.shape[-2:])
        rows = x.expand(shape).flatten(0, -3)
    return cast(Tensor, _LayerNorm.apply(rows, weight, bias, eps)).view(shape)


class _LayerNorm(torch.autograd.Function):
    """Layer norm of ``[batches, n, channels]``; batch i belongs to run i modulo the run count."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        x, weight, bias = _in_lines(x), weight.contiguous(), bias.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        out = x.new_empty(x.shape)
        block = _block(x)
        with torch.cuda.device_of(x):  # Triton launches kernels on the current device
            _forward[(blocks(x.shape[1], block["ROWS"]), len(x))](
                x, weight, bias, out, *x.stride()[:2], *_sizes(x, weight), eps, **block
            )
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient = _in_lines(gradients[0])
        block = _block(x)
        batches, length, channels = x.shape
        tiles = blocks(length, block["ROWS"])
        chunk = blocks(tiles, max(1, _PROGRAMS // batches)) * block["ROWS"]
        parts = blocks(length, chunk) if length else 0
        of_x = x.new_empty(x.shape)
        sums = x.new_empty(parts * batches * 2 * channels)
        with torch.cuda.device_of(x):
            strides = (*gradient.stride()[:2], *x.stride()[:2])
            sizes = (*_sizes(x, weight), chunk, ctx.eps)
            _backward[(parts, batches)](gradient, x, weight, of_x, sums, *strides, *sizes, **block)
            if not any(ctx.needs_input_grad[1:3]):
                return of_x, None, None, None
            totals = sums.view(-1, 2 * weight.numel()).sum(dim=0)
        return of_x, *totals.view(2, *weight.shape), None


def _in_lines(x: Tensor) -> Tensor:
    """The tensor with contiguous rows; rows may have any stride."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, int]:
    """Number of rows of a batch, and number of runs."""
    return x.shape[1], weight.numel() // x.shape[2]


def _block(x: Tensor) -> dict[str, int]:
    channels = x.shape[2]
    width = power_of_two(channels)
    rows = max(1, _NUMBERS // width)
    warps = min(max(rows * width // 512, 4), 32)
    return {"CHANNELS": channels, "ROWS": rows, "WIDTH": width, "num_warps": warps}


@jit
def _standardised(x, inside, eps, CHANNELS: tl.constexpr):
    """Rows with mean 0 and variance 1, padded with zeros, and inverse standard deviations."""
    mean = tl.sum(x, axis=1) / CHANNELS
    centred = tl.where(inside[None, :], x - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, axis=1) / CHANNELS + eps)[:, None]
    return centred * inverse, inverse


@jit
def _forward(
    x,
    weight,
    bias,
    out,
    batch_stride,
    row_stride,
    rows,
    runs,
    eps,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    start = tl.program_id(0).to(tl.int64) * ROWS
    batch = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < CHANNELS
    own = (batch % runs) * CHANNELS + column
    w = tl.load(weight + own, mask=inside, other=0.0)
    b = tl.load(bias + own, mask=inside, other=0.0)
    values = tile(x + batch * batch_stride, start, rows, row_stride, CHANNELS, ROWS, WIDTH)
    normal, _ = _standardised(values, inside, eps, CHANNELS)
    y = normal * w[None, :] + b[None, :]
    out += batch * rows * CHANNELS
    store_tile(out, y, start, rows, CHANNELS, CHANNELS, ROWS, WIDTH)


@jit
def _backward(
    gradient,
    x,
    weight,
    of_x,
    sums,
    gradient_batch_stride,
    gradient_row_stride,
    batch_stride,
    row_stride,
    rows,
    runs,
    chunk,
    eps,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    part = tl.program_id(0).to(tl.int64)
    batch = tl.program_id(1).to(tl.int64)
    run = batch % runs
    column = tl.arange(0, WIDTH)
    inside = column < CHANNELS
    w = tl.load(weight + run * CHANNELS + column, mask=inside, other=0.0)
    gradient += batch * gradient_batch_stride
    x += batch * batch_stride
    of_x += batch * rows * CHANNELS
    of_weight = tl.zeros([ROWS, WIDTH], tl.float32)
    of_bias = tl.zeros([ROWS, WIDTH], tl.float32)
    end = tl.minimum((part + 1) * chunk, rows)
    for start in range(part * chunk, end, ROWS):
        g = tile(gradient, start, end, gradient_row_stride, CHANNELS, ROWS, WIDTH)
        values = tile(x, start, end, row_stride, CHANNELS, ROWS, WIDTH)
        normal, inverse = _standardised(values, inside, eps, CHANNELS)
        of_weight += g * normal
        of_bias += g
        h = g * w[None, :]
        level = tl.sum(h, axis=1) / CHANNELS
        slope = tl.sum(h * normal, axis=1) / CHANNELS
        back = (h - level[:, None] - normal * slope[:, None]) * inverse
        store_tile(of_x, back, start, end, CHANNELS, CHANNELS, ROWS, WIDTH)
    # The [2, runs, channels] of all parts are stacked, for sums over columns.
    first = (part * tl.num_programs(1) + batch - run) * 2 + run
    tl.store(sums + first * CHANNELS + column, tl.sum(of_weight, axis=0), mask=inside)
    place = (first + runs) * CHANNELS + column
    tl.store(sums + place, tl.sum(of_bias, axis=0), mask=inside)
