r"""Sums over rows that follow one another."""

from __future__ import annotations

from torch import Tensor

from specformer.kernels.triton.language import COLUMNS, blocks, jit, tl

#: Rows read at once.
_ROWS = 32


def contiguous_sum(rows: Tensor, offsets: Tensor) -> Tensor:
    r"""The sums of the rows from each offset to the next; no gradient.

    Shapes: rows ``[rows, channels]``, offsets ``[segments + 1]``, output ``[segments, channels]``.
    """
    rows = rows.contiguous()
    count, channels = len(offsets) - 1, rows.shape[1]
    sums = rows.new_empty(count, channels)
    _segments_summed[(count, blocks(channels, COLUMNS))](
        rows, sums, offsets, channels, _ROWS, COLUMNS, num_warps=2
    )
    return sums


@jit
def _segments_summed(rows, sums, offsets, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    segment = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    begin, end = tl.load(offsets + segment), tl.load(offsets + segment + 1)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(begin, end, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row < end)[:, None] & inside[None, :]
        total += tl.load(rows + row[:, None] * channels + column[None, :], mask=mask, other=0.0)
    tl.store(sums + segment * channels + column, tl.sum(total, axis=0), mask=inside)
