r"""A few numbers a row to many channels, and GELU, in one pass."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from specformer.nn.kernels.columns import column_sum
from specformer.nn.kernels.language import (
    COLUMNS,
    blocks,
    gelu,
    gelu_slope,
    jit,
    power_of_two,
    tl,
)

#: Rows of a program; fewer backward, where each takes many registers.
_ROWS, _ROWS_BACK = 64, 32


def gelu_lift(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r""":math:`\mathrm{GELU}(x W^\top + b)` for x much narrower than the output.

    What GELU is taken of is not kept: backward computes it again, which costs less than reading it.

    Shapes: x ``[rows, in]``, weight ``[out, in]``, bias ``[out]``, output ``[rows, out]``.
    """
    return cast(Tensor, _GeluLift.apply(x, weight, bias))


class _GeluLift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, weight, bias)
        (rows, narrow), wide = x.shape, len(weight)
        out = x.new_empty(rows, wide)
        _lift_forward[(blocks(rows, _ROWS), blocks(wide, COLUMNS))](
            x, weight, bias, out, rows, wide, narrow, _ROWS, COLUMNS
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, bias = ctx.saved_tensors
        (rows, narrow), wide = x.shape, len(weight)
        programs = blocks(rows, _ROWS_BACK)
        of_x = torch.empty_like(x)
        # The gradients of W and then of b, in parts by program.
        parts = x.new_empty(programs, wide * narrow + wide)
        _lift_backward[(programs,)](
            gradients[0].contiguous(),
            x,
            weight,
            bias,
            of_x,
            parts,
            rows,
            wide,
            narrow,
            WIDTH=power_of_two(narrow + 1, least=16),  # the least that products take
            ROWS=_ROWS_BACK,
            COLUMNS=COLUMNS,
        )
        of_weight, of_bias = column_sum(parts).split([wide * narrow, wide])
        return of_x, of_weight.view_as(weight), of_bias


@jit
def _lifted(x, weight, bias, row, column, rows, wide, NARROW: tl.constexpr):
    """The map x Wᵀ + b, number by number: exact, and fast for so few."""
    inside, there = column < wide, row < rows
    lifted = tl.load(bias + column, mask=inside, other=0.0)[None, :]
    for i in tl.static_range(NARROW):
        entry = tl.load(x + row * NARROW + i, mask=there, other=0.0)
        lifted += entry[:, None] * tl.load(weight + column * NARROW + i, mask=inside, other=0.0)
    return lifted


@jit
def _lift_forward(
    x,
    weight,
    bias,
    out,
    rows,
    wide,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < wide)[None, :]
    lifted = _lifted(x, weight, bias, row, column, rows, wide, NARROW)
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
    wide,
    NARROW: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    row = program * ROWS + tl.arange(0, ROWS)
    there = row < rows
    entry = tl.arange(0, WIDTH)
    narrow = entry < NARROW
    place = row[:, None] * NARROW + entry[None, :]
    real = there[:, None] & narrow[None, :]
    inputs = tl.load(x + place, mask=real, other=0.0)
    inputs = tl.where((entry == NARROW)[None, :], 1.0, inputs)  # that of the bias
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(0, wide, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = column < wide
        both = there[:, None] & inside[None, :]
        lifted = _lifted(x, weight, bias, row, column, rows, wide, NARROW)
        g = tl.load(gradient + row[:, None] * wide + column[None, :], mask=both, other=0.0)
        g *= gelu_slope(lifted)
        known = inside[:, None] & narrow[None, :]
        w = tl.load(weight + column[:, None] * NARROW + entry[None, :], mask=known, other=0.0)
        total = tl.dot(g, w, total, input_precision="tf32x3")
        part = tl.dot(tl.trans(g), inputs, input_precision="tf32x3")
        at = column[:, None] * NARROW + entry[None, :]
        at = tl.where((entry == NARROW)[None, :], wide * NARROW + column[:, None], at)
        mask = inside[:, None] & (entry <= NARROW)[None, :]
        tl.store(parts + program * (wide * NARROW + wide) + at, part, mask=mask)
    tl.store(of_x + place, total, mask=real)
