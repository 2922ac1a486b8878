r"""A linear map from few to many channels, followed by GELU, in one pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specformer.kernels.tracing import first_order
from specformer.kernels.triton.language import (
    blocks,
    dot_precision,
    gelu,
    gelu_slope,
    jit,
    power_of_two,
    tl,
)

#: Rows and most columns of a block; fewer columns backward, where each takes many registers. From
#: 64 rows on a group of four warps multiplies together.
_FORWARD, _BACKWARD = (64, 128), (64, 64)
#: Programs that keep a GPU of 132 multiprocessors busy; more would leave more parts to add.
_PROGRAMS = 512


def gelu_lift(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r""":math:`\mathrm{GELU}(x W^\top + b)` for x much narrower than the output.

    The input of GELU is not stored: the backward pass computes it again, which is faster than
    reading it. The bias is an additional column of W. Products use three TF32 products, which are
    as precise as float32. Other products of the backward pass use one if PyTorch's own may.
    """
    return _GeluLift.apply(x, weight, bias)


class _GeluLift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, weight, bias)
        out = x.new_empty(len(x), len(weight))
        grid, chunk, block = _work(x, weight, *_FORWARD)
        _lift_forward[grid](x, weight, bias, out, len(x), chunk, *weight.shape, **block)
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, bias = ctx.saved_tensors
        wide, narrow = weight.shape
        grid, chunk, block = _work(x, weight, *_BACKWARD)
        # Gradients of x in parts by columns; those of W and of b in parts by rows.
        of_x = x.new_empty(grid[1], *x.shape)
        parts = x.new_empty(grid[0], wide * narrow + wide)
        places = (gradients[0].contiguous(), x, weight, bias, of_x, parts)
        precision = dot_precision("tf32x3")
        _lift_backward[grid](*places, len(x), chunk, *weight.shape, PRECISION=precision, **block)
        of_weight, of_bias = parts.sum(dim=0).split([wide * narrow, wide])
        return of_x[0] if grid[1] == 1 else of_x.sum(dim=0), of_weight.view_as(weight), of_bias


def _work(
    x: Tensor, weight: Tensor, rows: int, most: int
) -> tuple[tuple[int, int], int, dict[str, int]]:
    """Number of programs by rows and by columns, rows per program, and its block."""
    wide, narrow = weight.shape
    columns = min(power_of_two(wide, least=16), most)  # products need at least 16
    across = blocks(wide, columns)
    chunk = max(1, blocks(blocks(len(x), rows), max(1, _PROGRAMS // across))) * rows
    block = {"WIDTH": power_of_two(narrow + 1, least=16), "ROWS": rows, "COLUMNS": columns}
    return (blocks(len(x), chunk), across), chunk, {**block, "num_warps": 4, "num_stages": 2}


@jit
def _map(weight, bias, column, wide, NARROW: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of the matrix ``[out, in + 1]``, whose last column is the bias, padded with zeros."""
    entry = tl.arange(0, WIDTH)
    inside = column < wide
    known = inside[:, None] & (entry < NARROW)[None, :]
    w = tl.load(weight + column[:, None] * NARROW + entry[None, :], mask=known, other=0.0)
    b = tl.load(bias + column, mask=inside, other=0.0)
    return tl.where((entry == NARROW)[None, :], b[:, None], w)


@jit
def _inputs(x, row, end, NARROW: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of x, each followed by a one for the bias; zeros from ``end`` on."""
    entry = tl.arange(0, WIDTH)
    real = (row < end)[:, None] & (entry < NARROW)[None, :]
    inputs = tl.load(x + row[:, None] * NARROW + entry[None, :], mask=real, other=0.0)
    return tl.where((entry == NARROW)[None, :], 1.0, inputs)


@jit
def _lift_forward(
    x,
    weight,
    bias,
    out,
    rows,
    chunk,
    wide,
    NARROW: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    w = tl.trans(_map(weight, bias, column, wide, NARROW, WIDTH))
    end = tl.minimum((program + 1) * chunk, rows)
    for start in range(program * chunk, end, ROWS):
        row = start + tl.arange(0, ROWS)
        inputs = _inputs(x, row, end, NARROW, WIDTH)
        lifted = tl.dot(inputs, w, input_precision="tf32x3")
        mask = (row < end)[:, None] & (column < wide)[None, :]
        tl.store(out + row[:, None] * wide + column[None, :], gelu(lifted), mask=mask)


@jit
def _lift_backward(
    gradient,
    x,
    weight,
    bias,
    of_x,
    parts,
    rows,
    chunk,
    wide,
    NARROW: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    column, entry = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, WIDTH)
    inside, narrow = column < wide, entry < NARROW
    w = _map(weight, bias, column, wide, NARROW, WIDTH)
    of_x += tl.program_id(1).to(tl.int64) * rows * NARROW
    total = tl.zeros([COLUMNS, WIDTH], tl.float32)
    end = tl.minimum((program + 1) * chunk, rows)
    for start in range(program * chunk, end, ROWS):
        row = start + tl.arange(0, ROWS)
        there = row < end
        both = there[:, None] & inside[None, :]
        g = tl.load(gradient + row[:, None] * wide + column[None, :], mask=both, other=0.0)
        inputs = _inputs(x, row, end, NARROW, WIDTH)
        g *= gelu_slope(tl.dot(inputs, tl.trans(w), input_precision="tf32x3"))
        total = tl.dot(tl.trans(g), inputs, total, input_precision=PRECISION)
        back = tl.dot(g, w, input_precision=PRECISION)
        place = of_x + row[:, None] * NARROW + entry[None, :]
        tl.store(place, back, mask=there[:, None] & narrow[None, :])
    at = column[:, None] * NARROW + entry[None, :]
    at = tl.where((entry == NARROW)[None, :], wide * NARROW + column[:, None], at)
    mask = inside[:, None] & (entry <= NARROW)[None, :]
    tl.store(parts + program * (wide * NARROW + wide) + at, total, mask=mask)
