r"""Batch normalisation, with an activation or none; for a few thousand rows one kernel each way."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from specformer.kernels.norms import Averages
from specformer.kernels.tracing import first_order
from specformer.kernels.triton.columns import column_moments, update_averages
from specformer.kernels.triton.language import (
    COLUMNS,
    blocks,
    gelu,
    gelu_slope,
    jit,
    power_of_two,
    tl,
)

#: Columns of a program that takes all rows; few, so that there are enough programs.
_COLUMNS = 4
#: Most rows for which one program takes all of them.
_ROWS = 4096
#: Rows per program if there are more.
_SOME = 128


def normalised(
    x: Tensor,
    share: Tensor,
    number: Tensor,
    weight: Tensor,
    bias: Tensor,
    averages: Averages,
    eps: float,
    activation: Literal["relu", "gelu"] | None = None,
) -> Tensor:
    r""":math:`\sigma(w (x - \mu)/\sqrt{v + \varepsilon} + b)`; updates running averages.

    μ and v are those of the rows that count, v from squares about μ. A constant added to all rows
    only changes the running means. The bias of the linear map before is therefore passed as the
    averages' ``shift``, and its gradient is zero. Up to a few thousand rows, a program holds whole
    columns and reads each number once. For more rows, statistics take a separate pass.

    Shapes: x ``[rows, columns]``; share ``[rows, 1]``, one for a row that counts, else zero; number
    ``[]``, how many count; weight and bias ``[columns]``; output as x.
    """
    return _Normalised.apply(
        x, share, number, weight, bias, averages.shift, averages, eps, activation or "none"
    )


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        share: Tensor,
        number: Tensor,
        weight: Tensor,
        bias: Tensor,
        shift: Tensor,
        averages: Averages,
        eps: float,
        activation: str,
    ) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        affine = (weight, bias)
        if len(x) > _ROWS:
            mean, inverse = column_moments(x, share, number, averages, eps)
            _some_forward[_tiles(x)](
                x, *affine, mean, inverse, out, *x.shape, activation, ROWS=_SOME, COLUMNS=COLUMNS
            )
        else:
            mean, inverse = x.new_empty(2, x.shape[1])
            given = (x, share, number, *affine, averages.mean, averages.var, shift)
            numbers = (*x.shape, averages.momentum, eps, activation)
            _normalise_forward[(blocks(x.shape[1], _COLUMNS),)](
                *given, mean, inverse, out, *numbers, **_block(x)
            )
        ctx.save_for_backward(x, share, number, weight, bias, mean, inverse)
        ctx.activation = activation
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, share, number, *standard = ctx.saved_tensors
        activation = ctx.activation
        gradient = gradients[0].contiguous()
        of_x = torch.empty_like(x)
        whole = len(x) <= _ROWS
        if whole:
            tiles, block = (1, blocks(x.shape[1], _COLUMNS)), _block(x)
            sums = x.new_empty(3 * x.shape[1])
        else:
            tiles, block = _tiles(x), {"ROWS": _SOME, "COLUMNS": COLUMNS}
            parts = x.new_empty(tiles[0], 2 * x.shape[1])
            _some_sums[tiles](gradient, x, *standard, parts, *x.shape, activation, **block)
            sums = torch.cat([parts.sum(dim=0), x.new_zeros(x.shape[1])])
        _normalise_backward[tiles](
            gradient, x, share, number, *standard, sums, of_x, *x.shape, activation, whole, **block
        )
        of_bias, of_weight, of_shift = sums.view(3, -1)
        return of_x, None, None, of_weight, of_bias, of_shift, None, None, None


def _tiles(x: Tensor) -> tuple[int, int]:
    return blocks(len(x), _SOME), blocks(x.shape[1], COLUMNS)


def _block(x: Tensor) -> dict[str, Any]:
    rows = power_of_two(len(x), least=256)
    # Eight rows per thread: enough parallel reads, and few enough registers.
    return {"ROWS": rows, "COLUMNS": _COLUMNS, "num_warps": min(max(rows // 256, 4), 16)}


@jit
def _tile(x, start, rows, columns, column, ROWS: tl.constexpr):
    """Rows from ``start`` on, their positions and their mask."""
    row = start + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    place = row[:, None] * columns + column[None, :]
    return tl.load(x + place, mask=mask, other=0.0), place, mask


@jit
def _counted(share, start, rows, ROWS: tl.constexpr):
    row = start + tl.arange(0, ROWS)
    return tl.load(share + row, mask=row < rows, other=0.0)[:, None]


@jit
def _activated(x, ACTIVATION: tl.constexpr):
    """GELU, ReLU or nothing. NaN stays NaN; a maximum would make it zero."""
    if ACTIVATION == "gelu":
        x = gelu(x)
    elif ACTIVATION == "relu":
        x = tl.where(x < 0.0, 0.0, x)
    return x


@jit
def _normalise_forward(
    x,
    share,
    number,
    weight,
    bias,
    average_mean,
    average_var,
    shift,
    mean_out,
    inverse_out,
    out,
    rows,
    columns,
    momentum,
    eps,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    n = tl.load(number)
    some = tl.maximum(n, 1.0)
    gamma = tl.load(weight + column, mask=inside, other=0.0)
    low = tl.load(bias + column, mask=inside, other=0.0)
    values, place, mask = _tile(x, 0, rows, columns, column, ROWS)
    counted = _counted(share, 0, rows, ROWS)
    mean = tl.sum(values * counted, axis=0) / some
    centred = values - mean[None, :]
    var = tl.sum(centred * centred * counted, axis=0) / some
    inverse = tl.rsqrt(var + eps)
    normal = centred * (gamma * inverse)[None, :] + low[None, :]
    tl.store(out + place, _activated(normal, ACTIVATION), mask=mask)
    tl.store(mean_out + column, mean, mask=inside)
    tl.store(inverse_out + column, inverse, mask=inside)
    update_averages(average_mean, average_var, shift, mean, var, n, momentum, column, inside)


@jit
def _passed(
    gradient,
    x,
    start,
    rows,
    columns,
    column,
    mean,
    inverse,
    gamma,
    low,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Gradient before the activation, the normalised rows, and their positions."""
    values, place, mask = _tile(x, start, rows, columns, column, ROWS)
    normal = (values - mean[None, :]) * inverse[None, :]
    g = tl.load(gradient + place, mask=mask, other=0.0)
    scaled = normal * gamma[None, :] + low[None, :]
    if ACTIVATION == "gelu":
        g *= gelu_slope(scaled)
    elif ACTIVATION == "relu":
        g = tl.where(scaled <= 0.0, 0.0, g)
    return g, normal, place, mask


@jit
def _standard(weight, bias, mean, inverse, column, inside):
    """Scale, shift, mean and inverse deviation of these columns."""
    gamma = tl.load(weight + column, mask=inside, other=0.0)
    low = tl.load(bias + column, mask=inside, other=0.0)
    middle = tl.load(mean + column, mask=inside, other=0.0)
    return gamma, low, middle, tl.load(inverse + column, mask=inside, other=0.0)


# --- many rows, some per program -----------------------------------------------------------------


@jit
def _some_forward(
    x,
    weight,
    bias,
    mean,
    inverse,
    out,
    rows,
    columns,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    gamma, low, middle, each = _standard(weight, bias, mean, inverse, column, column < columns)
    start = tl.program_id(0).to(tl.int64) * ROWS
    values, place, mask = _tile(x, start, rows, columns, column, ROWS)
    normal = (values - middle[None, :]) * (gamma * each)[None, :] + low[None, :]
    tl.store(out + place, _activated(normal, ACTIVATION), mask=mask)


@jit
def _some_sums(
    gradient,
    x,
    weight,
    bias,
    mean,
    inverse,
    parts,
    rows,
    columns,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    gamma, low, middle, each = _standard(weight, bias, mean, inverse, column, inside)
    part = tl.program_id(0).to(tl.int64)
    g, normal, _, _ = _passed(
        gradient, x, part * ROWS, rows, columns, column, middle, each, gamma, low, ACTIVATION, ROWS
    )
    place = parts + part * 2 * columns + column
    tl.store(place, tl.sum(g, axis=0), mask=inside)
    tl.store(place + columns, tl.sum(g * normal, axis=0), mask=inside)


@jit
def _normalise_backward(
    gradient,
    x,
    share,
    number,
    weight,
    bias,
    mean,
    inverse,
    sums,
    of_x,
    rows,
    columns,
    ACTIVATION: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients of some rows; the sums over all rows are given, or computed here if WHOLE."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    gamma, low, middle, each = _standard(weight, bias, mean, inverse, column, inside)
    start = 0 if WHOLE else tl.program_id(0).to(tl.int64) * ROWS
    g, normal, place, mask = _passed(
        gradient, x, start, rows, columns, column, middle, each, gamma, low, ACTIVATION, ROWS
    )
    if WHOLE:
        total = tl.sum(g, axis=0)
        slope = tl.sum(g * normal, axis=0)
        tl.store(sums + column, total, mask=inside)
        tl.store(sums + columns + column, slope, mask=inside)
        tl.store(sums + 2 * columns + column, tl.zeros([COLUMNS], tl.float32), mask=inside)
    else:
        total = tl.load(sums + column, mask=inside, other=0.0)
        slope = tl.load(sums + columns + column, mask=inside, other=0.0)
    # The gradient of each row that counts through the mean and through the variance.
    counted = _counted(share, start, rows, ROWS) / tl.maximum(tl.load(number), 1.0)
    g -= counted * (total[None, :] + normal * slope[None, :])
    tl.store(of_x + place, g * (gamma * each)[None, :], mask=mask)
