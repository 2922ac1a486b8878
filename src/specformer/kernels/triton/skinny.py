r"""Products of eigenvectors with a few columns, as fast as a GPU can read U.

Libraries optimise for more columns. They pad the columns, round them and remove the padding, each
in a separate kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from specformer.kernels.triton.language import jit, tl

#: Bytes that a thread reads at once: rows of U start at multiples of this.
_LINE = 16
#: Tiles of U that a program loads ahead.
_STAGES = 3
#: Rows per program that rounds x.
_ROWS = 64
#: Numbers that a program that adds parts writes, and parts that it reads at once.
_NUMBERS, _PARTS = 256, 12


class _Plan(NamedTuple):
    """How a product is split into programs."""

    #: Rows of the result, and terms of their sums, that a program takes at once.
    outputs: int
    terms: int
    #: Columns, with padding.
    columns: int
    warps: int
    #: Programs that run at once on 132 multiprocessors; more would have to wait.
    programs: int


def skinny_product(vectors: Tensor, x: Tensor, forward: bool) -> Tensor:
    r"""``Uᵀ x``, or ``U x`` if not ``forward``, for x with 1 to 32 columns.

    The factors are rounded to U's type, or to TF32 if that is float32. Sums are in float32 and
    always taken in the same order. If there are too few outputs to keep a GPU busy, the terms are
    split into parts, :math:`U^\top x = \sum_s U_s^\top x_s`, and another kernel adds them.

    Shapes: vectors ``[n, q]`` in bfloat16 or float32, rows a multiple of 16 bytes apart and zero
    between them; x ``[n, c]`` or ``[q, c]`` in float32, of any strides; output ``[q, c]`` or
    ``[n, c]``, contiguous.
    """
    (rows, pairs), columns = vectors.shape, x.shape[1]
    outputs, terms = (pairs, rows) if forward else (rows, pairs)
    plan = _plan(vectors.dtype, columns)
    blocks = -(-outputs // plan.outputs)
    steps = -(-terms // plan.terms)
    parts, share = _shares(steps, blocks, plan.programs)
    rounds = vectors.dtype != x.dtype
    factor = _rounded(x, steps * plan.terms, plan.columns, vectors.dtype) if rounds else x
    out = x.new_empty(outputs, columns)
    sums = x.new_empty(parts, outputs, columns) if parts > 1 else out
    line = _LINE // vectors.element_size()
    sizes = (rows, pairs, columns, vectors.stride(0) // line, *factor.stride(), share * plan.terms)
    constants = (forward, line, *plan[:3])
    _part_of_product[(blocks, parts)](
        *(vectors, factor, sums), *sizes, *constants, num_warps=plan.warps, num_stages=_STAGES
    )
    if parts > 1:
        size = out.numel()
        _parts_added[(-(-size // _NUMBERS),)](sums, out, parts, size, _PARTS, _NUMBERS, num_warps=4)
    return out


def _plan(dtype: torch.dtype, columns: int) -> _Plan:
    """The fastest of several plans on an H200, for the graphs of the paper."""
    if columns > 16:
        return _Plan(256, 64, 32, warps=8, programs=132)
    if dtype == torch.float32:
        return _Plan(128, 32, 16, warps=4, programs=264)
    return _Plan(128, 128, 16, warps=4, programs=264)


def _rounded(x: Tensor, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """A contiguous copy of x in another type, padded with zeros to this shape.

    Every block of outputs reads all of x. Without this copy, its few columns would be read one
    number at a time, which took longer on an H200 than reading U.
    """
    out = x.new_empty(rows, columns, dtype=dtype)
    size, strides = x.shape, x.stride()
    _rows_rounded[(-(-rows // _ROWS),)](x, out, *size, *strides, rows, _ROWS, columns, num_warps=4)
    return out


def _shares(steps: int, blocks: int, programs: int) -> tuple[int, int]:
    """Number of parts of ``steps`` and steps per part, for as many programs as run at once."""
    share = -(-steps // max(1, programs // blocks))
    return -(-steps // share), share


@jit
def _rows_rounded(
    x, out, rows, columns, x_row, x_column, all_rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    place = x + (row.to(tl.int64) * x_row)[:, None] + (column * x_column)[None, :]
    values = tl.load(place, mask=(row < rows)[:, None] & (column < columns)[None, :], other=0.0)
    place_out = out + row[:, None] * COLUMNS + column[None, :]
    tl.store(place_out, values.to(out.dtype.element_ty), mask=(row < all_rows)[:, None])


@jit
def _part_of_product(
    vectors,
    x,
    out,
    rows,
    pairs,
    columns,
    lines,
    x_row,
    x_column,
    share,
    FORWARD: tl.constexpr,
    LINE: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TERMS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    # The mask is per line: a mask that may end within a line would halve the width of reads.
    width = lines * LINE
    part = tl.program_id(1)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    term = tl.arange(0, TERMS)
    column = tl.arange(0, COLUMNS)
    there = (column < columns)[None, :]
    if FORWARD:
        outputs, terms = pairs, rows
        place = vectors + (term[:, None] * width + output[None, :])
        inside = (output < width)[None, :]
    else:
        outputs, terms = rows, pairs
        place = vectors + (output.to(tl.int64) * width)[:, None] + term[None, :]
        inside = (output < rows)[:, None]
    # The rounded x has room for whole tiles, and is read in lines too.
    ROUNDED: tl.constexpr = LINE != 4
    if ROUNDED:
        place_x = x + (term[:, None] * COLUMNS + column[None, :])
    else:
        place_x = x + (term[:, None] * x_row + column[None, :] * x_column)
    # Tensor cores transpose tiles of 16-bit numbers only; for others, x is on the left.
    LEFT: tl.constexpr = FORWARD and LINE == 4
    total = tl.zeros([COLUMNS, OUTPUTS] if LEFT else [OUTPUTS, COLUMNS], tl.float32)
    for low in range(part * share, tl.minimum((part + 1) * share, terms), TERMS):
        start = tl.cast(low, tl.int64)
        mask = (low + term < terms)[:, None]
        if ROUNDED:
            values = tl.load(place_x + start * COLUMNS)
        else:
            values = tl.load(place_x + start * x_row, mask=mask & there, other=0.0)
        if FORWARD:
            tile = tl.load(place + start * width, mask=mask & inside, other=0.0)
        else:
            short = (low + term < width)[None, :]
            tile = tl.load(place + start, mask=inside & short, other=0.0)
        if LEFT:
            total = tl.dot(tl.trans(values), tile, total, input_precision="tf32")
        elif FORWARD:
            total = tl.dot(tl.trans(tile), values, total, input_precision="tf32")
        else:
            total = tl.dot(tile, values, total, input_precision="tf32")
    if LEFT:
        total = tl.trans(total)
    place_out = out + part.to(tl.int64) * outputs * columns
    place_out += output.to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(place_out, total, mask=(output < outputs)[:, None] & there)


@jit
def _parts_added(sums, out, parts, size, PARTS: tl.constexpr, NUMBERS: tl.constexpr):
    number = tl.program_id(0) * NUMBERS + tl.arange(0, NUMBERS)
    inside = number < size
    total = tl.zeros([NUMBERS], tl.float32)
    for low in range(0, parts, PARTS):
        place = sums + tl.cast(low, tl.int64) * size + number
        for step in tl.static_range(PARTS):
            total += tl.load(place + step * size, mask=inside & (low + step < parts), other=0.0)
    tl.store(out + number, total, mask=inside)
