r"""Sums over segments of rows, and rows from their segments."""

from __future__ import annotations

from torch import Tensor

from specformer.kernels.triton.language import blocks, jit, power_of_two, tl

#: Rows per program that gathers, and rows that a sum reads at once.
_ROWS = 8
#: Most columns per program.
_COLUMNS = 128


def gathered(values: Tensor, index: Tensor, outside: float) -> Tensor:
    """``values[index]``, and ``outside`` where the index is past the last row.

    PyTorch would append a row to the values, which copies them, and then gather.

    Shapes: values ``[S, columns]``, index ``[P]``, output ``[P, columns]``.
    """
    columns = values.shape[1]
    out = values.new_empty(len(index), columns)
    if out.numel():
        wide = min(power_of_two(columns, least=16), _COLUMNS)
        grid = (blocks(len(index), _ROWS), blocks(columns, wide))
        values, stride = by_rows(values)
        _gather[grid](
            values, index, out, outside, len(index), len(values), columns, stride, _ROWS, wide,
            num_warps=1,
        )  # fmt: skip
    return out


def segment_sums(rows: Tensor, offsets: Tensor, order: Tensor | None) -> Tensor:
    """Sums over the rows from ``offsets[s]`` to ``offsets[s + 1]``, in the given order.

    PyTorch would copy the rows in that order first.

    Shapes: rows ``[P, columns]``, offsets ``[S + 1]``, order ``[P]``, output ``[S, columns]``.
    """
    segments, columns = len(offsets) - 1, rows.shape[1]
    out = rows.new_empty(segments, columns)
    if out.numel():
        wide = min(power_of_two(columns, least=16), _COLUMNS)
        rows, stride = by_rows(rows)
        _sum[(segments, blocks(columns, wide))](
            rows, offsets, offsets if order is None else order, out, columns, stride,
            order is not None, _ROWS, wide, num_warps=1,
        )  # fmt: skip
    return out


def by_rows(x: Tensor) -> tuple[Tensor, int]:
    """A matrix with each row in one piece, and how far apart rows are.

    Some columns of a matrix need no copy.
    """
    x = x if x.stride(1) == 1 else x.contiguous()
    return x, x.stride(0)


@jit
def _gather(
    values,
    index,
    out,
    outside,
    rows,
    targets,
    columns,
    stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    source = tl.load(index + row, mask=row < rows, other=targets)
    inside = (column < columns)[None, :]
    place = source[:, None] * stride + column[None, :]
    found = tl.load(values + place, mask=(source < targets)[:, None] & inside, other=outside)
    place = row[:, None] * columns + column[None, :]
    tl.store(out + place, found, mask=(row < rows)[:, None] & inside)


@jit
def _sum(
    x,
    offsets,
    order,
    out,
    columns,
    stride,
    ORDERED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    segment = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    end = tl.load(offsets + segment + 1)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(tl.load(offsets + segment), end, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = row < end
        if ORDERED:
            row = tl.load(order + row, mask=mask, other=0)
        place = row[:, None] * stride + column[None, :]
        total += tl.load(x + place, mask=mask[:, None] & inside[None, :], other=0.0)
    tl.store(out + segment * columns + column, tl.sum(total, axis=0), mask=inside)
