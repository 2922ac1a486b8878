r"""Sums over the rows of a matrix."""

from __future__ import annotations

from torch import Tensor

from specformer import kernels
from specformer.kernels.triton.language import COLUMNS, blocks, jit, tl

#: Rows read at once.
_ROWS = 128
#: Programs that keep a GPU of 132 multiprocessors busy; more only leave more parts to add.
_PROGRAMS = 512


def column_sum(x: Tensor) -> Tensor:
    r"""The sum of all rows, :math:`\sum_p x_p`.

    Parts of the rows are added by one program each, then the parts by a second kernel.

    Shapes: ``[rows, columns]``, contiguous; output ``[columns]``.
    """
    if not kernels.runs_on(x.device, "column_sum"):
        return x.sum(dim=0)
    rows, columns = x.shape
    wide = blocks(columns, COLUMNS)
    parts = min(blocks(rows, _ROWS), max(1, _PROGRAMS // wide))
    for count in (parts, 1) if parts > 1 else (1,):
        sums = x.new_empty(count, columns)
        chunk = blocks(len(x), count)
        _rows_summed[(count, wide)](x, sums, len(x), columns, chunk, _ROWS, COLUMNS)
        x = sums
    return x[0]


@jit
def _rows_summed(x, out, rows, columns, chunk, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    part = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    end = tl.minimum((part + 1) * chunk, rows)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(part * chunk, end, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row < end)[:, None] & inside[None, :]
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.store(out + part * columns + column, tl.sum(total, axis=0), mask=inside)
