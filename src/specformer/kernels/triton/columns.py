r"""Means and variances of all columns over many rows, and their running averages."""

from __future__ import annotations

from torch import Tensor

from specformer.kernels.norms import Averages
from specformer.kernels.triton.language import COLUMNS, blocks, jit, tl

#: Rows per program.
_ROWS = 128


def column_moments(
    x: Tensor, share: Tensor, number: Tensor, averages: Averages, eps: float
) -> tuple[Tensor, Tensor]:
    r"""Means and :math:`1/\sqrt{v + \varepsilon}` of all columns; updates running averages.

    Each block of rows gives a mean and a sum of squares about it. A second kernel combines them, so
    that a large mean does not cost precision.

    Shapes: x ``[rows, columns]``, contiguous; share ``[rows, 1]``, one for a row that counts, else
    zero; number ``[]``, how many count.
    """
    rows, columns = x.shape
    wide, parts = blocks(columns, COLUMNS), blocks(rows, _ROWS)
    counts, means, squares = (x.new_empty(parts, *more) for more in ((), (columns,), (columns,)))
    _moment_parts[(parts, wide)](x, share, counts, means, squares, rows, columns, _ROWS, COLUMNS)
    mean, inverse = x.new_empty(2, columns)
    places = (counts, means, squares, number, mean, inverse)
    running = (averages.mean, averages.var, averages.shift)
    sizes = (parts, columns, averages.momentum, eps, _ROWS, COLUMNS)
    _moments_joined[(wide,)](*places, *running, *sizes)
    return mean, inverse


@jit
def _moment_parts(
    x, share, counts, means, squares, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    part = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = part * ROWS + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    values = tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    counted = tl.load(share + row, mask=row < rows, other=0.0)
    count = tl.sum(counted, axis=0)
    mean = tl.sum(values * counted[:, None], axis=0) / tl.maximum(count, 1.0)
    centred = values - mean[None, :]
    square = tl.sum(centred * centred * counted[:, None], axis=0)
    tl.store(counts + part, count)
    tl.store(means + part * columns + column, mean, mask=column < columns)
    tl.store(squares + part * columns + column, square, mask=column < columns)


@jit
def _moments_joined(
    counts,
    means,
    squares,
    number,
    mean_out,
    inverse_out,
    average_mean,
    average_var,
    shift,
    parts,
    columns,
    momentum,
    eps,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    n = tl.load(number)
    some = tl.maximum(n, 1.0)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, parts, ROWS):
        part = start + tl.arange(0, ROWS)
        mask = (part < parts)[:, None] & inside[None, :]
        count = tl.load(counts + part, mask=part < parts, other=0.0)
        mean = tl.load(means + part[:, None] * columns + column[None, :], mask=mask, other=0.0)
        total += mean * count[:, None]
    middle = tl.sum(total, axis=0) / some
    spread = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, parts, ROWS):
        part = start + tl.arange(0, ROWS)
        mask = (part < parts)[:, None] & inside[None, :]
        place = part[:, None] * columns + column[None, :]
        count = tl.load(counts + part, mask=part < parts, other=0.0)
        off = tl.load(means + place, mask=mask, other=0.0) - middle[None, :]
        spread += tl.load(squares + place, mask=mask, other=0.0) + off * off * count[:, None]
    var = tl.sum(spread, axis=0) / some
    tl.store(mean_out + column, middle, mask=inside)
    tl.store(inverse_out + column, tl.rsqrt(var + eps), mask=inside)
    update_averages(average_mean, average_var, shift, middle, var, n, momentum, column, inside)


@jit
def update_averages(average_mean, average_var, shift, mean, var, n, momentum, column, inside):
    """Update running averages with the shifted means and unbiased variances of n ≥ 2 rows."""
    momentum = tl.where(n > 1.0, momentum, 0.0)
    old = tl.load(average_mean + column, mask=inside, other=0.0)
    new = mean + tl.load(shift + column, mask=inside, other=0.0)
    tl.store(average_mean + column, old + momentum * (new - old), mask=inside)
    old = tl.load(average_var + column, mask=inside, other=0.0)
    new = var * (n / tl.maximum(n - 1.0, 1.0))
    tl.store(average_var + column, old + momentum * (new - old), mask=inside)
