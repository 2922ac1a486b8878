r"""Batch normalisation and ReLU of a few thousand rows, in one kernel each way."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from specformer.nn.kernels.language import blocks, jit, power_of_two, tl
from specformer.nn.kernels.moments import update_averages
from specformer.nn.kernels.statistics import Averages

#: Columns of a program: so few that there are enough programs.
_COLUMNS = 4
#: Most rows that a program reads at once; of no more it reads each number only once.
_ROWS = 4096


def normalised_relu(
    x: Tensor,
    share: Tensor,
    number: Tensor,
    weight: Tensor,
    bias: Tensor,
    averages: Averages,
    eps: float,
) -> Tensor:
    r""":math:`\max(0, w (x - \mu)/\sqrt{v + \varepsilon} + b)`; the averages take their part.

    μ and v are those of the rows that count, v from squares about μ. A constant added to all rows
    changes nothing but the running means, so the bias of a linear map before goes there, as the
    averages' ``shift``, and its gradient is zero.

    Shapes: x ``[rows, columns]``; share ``[rows, 1]``, one for a row that counts, else zero; number
    ``[]``, how many count; weight and bias ``[columns]``; output as x.
    """
    out = _Normalised.apply(x, share, number, weight, bias, averages.shift, averages, eps)
    return cast(Tensor, out)


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
    ) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        mean, inverse = x.new_empty(2, x.shape[1])
        _normalise_forward[_grid(x)](
            x,
            share,
            number,
            weight,
            bias,
            averages.mean,
            averages.var,
            shift,
            mean,
            inverse,
            out,
            *x.shape,
            averages.momentum,
            eps,
            **_block(x),
        )
        ctx.save_for_backward(x, share, number, weight, bias, mean, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, share, number, weight, bias, mean, inverse = ctx.saved_tensors
        of_x = torch.empty_like(x)
        of_weight, of_bias, of_shift = x.new_empty(3, x.shape[1])
        _normalise_backward[_grid(x)](
            gradients[0].contiguous(),
            x,
            share,
            number,
            weight,
            bias,
            mean,
            inverse,
            of_x,
            of_weight,
            of_bias,
            of_shift,
            *x.shape,
            **_block(x),
        )
        return of_x, None, None, of_weight, of_bias, of_shift, None, None


def _grid(x: Tensor) -> tuple[int]:
    return (blocks(x.shape[1], _COLUMNS),)


def _block(x: Tensor) -> dict[str, Any]:
    rows = min(power_of_two(len(x), least=256), _ROWS)
    # Eight rows a thread: enough reads at once, and few enough registers.
    return {
        "ROWS": rows,
        "COLUMNS": _COLUMNS,
        "WHOLE": len(x) <= rows,
        "num_warps": min(max(rows // 256, 4), 16),
    }


@jit
def _tile(x, start, rows, columns, column, ROWS: tl.constexpr):
    """Rows from ``start`` on, their places and which of them there are."""
    row = start + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    place = row[:, None] * columns + column[None, :]
    return tl.load(x + place, mask=mask, other=0.0), place, mask


@jit
def _counted(share, start, rows, ROWS: tl.constexpr):
    row = start + tl.arange(0, ROWS)
    return tl.load(share + row, mask=row < rows, other=0.0)[:, None]


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
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    n = tl.load(number)
    gamma = tl.load(weight + column, mask=inside, other=0.0)
    low = tl.load(bias + column, mask=inside, other=0.0)
    if WHOLE:
        values, place, mask = _tile(x, 0, rows, columns, column, ROWS)
        counted = _counted(share, 0, rows, ROWS)
        mean = tl.sum(values * counted, axis=0) / n
        centred = values - mean[None, :]
        var = tl.sum(centred * centred * counted, axis=0) / n
        inverse = tl.rsqrt(var + eps)
        normal = centred * (gamma * inverse)[None, :] + low[None, :]
        tl.store(out + place, tl.maximum(normal, 0.0), mask=mask)
    else:
        total = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, rows, ROWS):
            values, _, _ = _tile(x, start, rows, columns, column, ROWS)
            total += values * _counted(share, start, rows, ROWS)
        mean = tl.sum(total, axis=0) / n
        squares = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, rows, ROWS):
            values, _, _ = _tile(x, start, rows, columns, column, ROWS)
            centred = values - mean[None, :]
            squares += centred * centred * _counted(share, start, rows, ROWS)
        var = tl.sum(squares, axis=0) / n
        inverse = tl.rsqrt(var + eps)
        for start in range(0, rows, ROWS):
            values, place, mask = _tile(x, start, rows, columns, column, ROWS)
            normal = (values - mean[None, :]) * (gamma * inverse)[None, :] + low[None, :]
            tl.store(out + place, tl.maximum(normal, 0.0), mask=mask)
    tl.store(mean_out + column, mean, mask=inside)
    tl.store(inverse_out + column, inverse, mask=inside)
    update_averages(average_mean, average_var, shift, mean, var, n, momentum, column, inside)


@jit
def _passed(
    gradient, x, start, rows, columns, column, mean, inverse, gamma, low, ROWS: tl.constexpr
):
    """What ReLU lets through of the gradient, the normalised rows, and where they lie."""
    values, place, mask = _tile(x, start, rows, columns, column, ROWS)
    normal = (values - mean[None, :]) * inverse[None, :]
    g = tl.load(gradient + place, mask=mask, other=0.0)
    g = tl.where(normal * gamma[None, :] + low[None, :] > 0.0, g, 0.0)
    return g, normal, place, mask


@jit
def _normalise_backward(
    gradient,
    x,
    share,
    number,
    weight,
    bias,
    mean_in,
    inverse_in,
    of_x,
    of_weight,
    of_bias,
    of_shift,
    rows,
    columns,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    n = tl.load(number)
    mean = tl.load(mean_in + column, mask=inside, other=0.0)
    inverse = tl.load(inverse_in + column, mask=inside, other=0.0)
    gamma = tl.load(weight + column, mask=inside, other=0.0)
    low = tl.load(bias + column, mask=inside, other=0.0)
    scale = gamma * inverse
    # Every row that counts adds through the mean, and through the variance.
    if WHOLE:
        g, normal, place, mask = _passed(
            gradient, x, 0, rows, columns, column, mean, inverse, gamma, low, ROWS
        )
        counted = _counted(share, 0, rows, ROWS) / n
        total = tl.sum(g, axis=0)
        slope = tl.sum(g * normal, axis=0)
        g -= counted * (total[None, :] + normal * slope[None, :])
        tl.store(of_x + place, g * scale[None, :], mask=mask)
    else:
        direct = tl.zeros([ROWS, COLUMNS], tl.float32)
        sloped = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, rows, ROWS):
            g, normal, _, _ = _passed(
                gradient, x, start, rows, columns, column, mean, inverse, gamma, low, ROWS
            )
            direct += g
            sloped += g * normal
        total = tl.sum(direct, axis=0)
        slope = tl.sum(sloped, axis=0)
        for start in range(0, rows, ROWS):
            g, normal, place, mask = _passed(
                gradient, x, start, rows, columns, column, mean, inverse, gamma, low, ROWS
            )
            counted = _counted(share, start, rows, ROWS) / n
            g -= counted * (total[None, :] + normal * slope[None, :])
            tl.store(of_x + place, g * scale[None, :], mask=mask)
    tl.store(of_weight + column, slope, mask=inside)
    tl.store(of_bias + column, total, mask=inside)
    tl.store(of_shift + column, tl.zeros([COLUMNS], tl.float32), mask=inside)
