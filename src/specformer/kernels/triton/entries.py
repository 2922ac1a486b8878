r"""The entries of the bases of many small graphs for every pair of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specformer.kernels.segments import PairIndex
from specformer.kernels.tracing import first_order
from specformer.kernels.triton.language import blocks, clear_padding, jit, power_of_two, tl

#: Sources and eigenvalues per block; most molecules fit into one.
_ROWS = 32
#: Most programs per target, because one would be slow for a large graph.
_SPLIT = 4


def basis_entries(response: Tensor, vectors: Tensor, index: PairIndex, largest: int) -> Tensor:
    r"""The entries of I and of all :math:`S_m = U\,\mathrm{diag}(\lambda_m)\,U^\top`.

    .. math::
        e_{ij} = [\delta_{ij} \,\Vert\, \textstyle\sum_k U_{ik} U_{jk} \lambda_{km}]

    Padding gets zeros. Graphs are not padded to squares. The gradient in :math:`\lambda_{km}` is
    :math:`\sum_i U_{ik} \sum_j g_{ijm} U_{jk}`, in that order.

    Shapes: response ``[N, heads]``, one graph after another, vectors ``[P]`` (:math:`U_{ik}` at the
    pair (i, k)), output ``[P, heads + 1]``; no graph has more nodes than ``largest``.
    """
    return _BasisEntries.apply(response, vectors, index, largest)


class _BasisEntries(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, response: Tensor, vectors: Tensor, index: PairIndex, largest: int
    ) -> Tensor:
        response = response.contiguous()
        ctx.save_for_backward(vectors)
        ctx.index, ctx.shape = index, response.shape
        rows, heads = response.shape
        ctx.grid = (rows, min(blocks(largest, 2 * _ROWS), _SPLIT))
        entries = response.new_empty(len(vectors), heads + 1)
        places = (response, vectors, entries, index.offsets, index.first)
        sizes = (rows, len(vectors), heads)
        _entries_forward[ctx.grid](*places, *sizes, **_block(heads), num_warps=4)
        return entries

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (vectors,) = ctx.saved_tensors
        rows, heads = ctx.shape
        places = (ctx.index.offsets, ctx.index.first)
        terms = vectors.new_empty(len(vectors), heads)
        _entries_backward[ctx.grid](
            gradients[0].contiguous(), vectors, terms, *places, heads, num_warps=2, **_block(heads)
        )
        of_response = vectors.new_empty(ctx.shape)
        _entries_summed[(rows,)](terms, of_response, *places, heads, num_warps=2, **_block(heads))
        return of_response, None, None, None


def _block(heads: int) -> dict[str, int]:
    # Products need at least 16 heads. Most graphs are one block: there is nothing to prefetch.
    return {"HEADS": power_of_two(heads, least=16), "ROWS": _ROWS, "num_stages": 1}


@jit
def _entries_forward(
    response,
    vectors,
    entries,
    offsets,
    first,
    targets,
    pairs,
    heads,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One target i and a strided subset of blocks of sources j, all heads; zeros for padding."""
    target = tl.program_id(0).to(tl.int64)
    begin = tl.load(offsets + target)
    count = tl.load(offsets + target + 1) - begin
    row = tl.load(first + target)
    corner = vectors + tl.load(offsets + row)
    gains = response + row * heads
    head = tl.arange(0, HEADS)
    for start in range(tl.program_id(1) * ROWS, count, tl.num_programs(1) * ROWS):
        source = start + tl.arange(0, ROWS)
        there = source < count
        total = tl.zeros([ROWS, HEADS], tl.float32)
        for low in range(0, count, ROWS):
            k = low + tl.arange(0, ROWS)
            known = k < count
            u = tl.load(vectors + begin + k, mask=known, other=0.0)
            mask = there[:, None] & known[None, :]
            v = tl.load(corner + source[:, None] * count + k[None, :], mask=mask, other=0.0)
            mask = known[:, None] & (head < heads)[None, :]
            gain = tl.load(gains + k[:, None] * heads + head[None, :], mask=mask, other=0.0)
            total = tl.dot(v * u[None, :], gain, total, input_precision="tf32x3")
        place = entries + (begin + source) * (heads + 1)
        tl.store(place, (row + source == target).to(tl.float32), mask=there)
        mask = there[:, None] & (head < heads)[None, :]
        tl.store(place[:, None] + 1 + head[None, :], total, mask=mask)
    if tl.program_id(1) == 0:
        column = tl.arange(0, 2 * HEADS)
        clear_padding(entries, offsets, target, targets, pairs, column, heads + 1, ROWS)


@jit
def _entries_backward(
    gradient, vectors, terms, offsets, first, heads, HEADS: tl.constexpr, ROWS: tl.constexpr
):
    r"""One target i and some blocks of eigenvalues k: :math:`U_{ik} \sum_j g_{ijm} U_{jk}`."""
    target = tl.program_id(0).to(tl.int64)
    begin = tl.load(offsets + target)
    count = tl.load(offsets + target + 1) - begin
    corner = vectors + tl.load(offsets + tl.load(first + target))
    head = tl.arange(0, HEADS)
    for start in range(tl.program_id(1) * ROWS, count, tl.num_programs(1) * ROWS):
        k = start + tl.arange(0, ROWS)
        known = k < count
        total = tl.zeros([ROWS, HEADS], tl.float32)
        for low in range(0, count, ROWS):
            j = low + tl.arange(0, ROWS)
            there = j < count
            mask = there[:, None] & known[None, :]
            v = tl.load(corner + j[:, None] * count + k[None, :], mask=mask, other=0.0)
            mask = there[:, None] & (head < heads)[None, :]
            place = gradient + (begin + j)[:, None] * (heads + 1) + 1 + head[None, :]
            g = tl.load(place, mask=mask, other=0.0)
            total = tl.dot(tl.trans(v), g, total, input_precision="tf32x3")
        u = tl.load(vectors + begin + k, mask=known, other=0.0)
        mask = known[:, None] & (head < heads)[None, :]
        place = terms + (begin + k)[:, None] * heads + head[None, :]
        tl.store(place, total * u[:, None], mask=mask)


@jit
def _entries_summed(
    terms, of_response, offsets, first, heads, HEADS: tl.constexpr, ROWS: tl.constexpr
):
    """Sum of the terms of all targets for one eigenvalue k of a graph; zeros for padding."""
    node = tl.program_id(0).to(tl.int64)
    row = tl.load(first + node)
    count = tl.load(offsets + node + 1) - tl.load(offsets + node)
    k = node - row
    head = tl.arange(0, HEADS)
    place = terms + (tl.load(offsets + row) + k) * heads + head
    total = tl.zeros([ROWS, HEADS], tl.float32)
    for low in range(0, count, ROWS):
        i = low + tl.arange(0, ROWS)
        mask = (i < count)[:, None] & (head < heads)[None, :]
        total += tl.load(place[None, :] + i[:, None] * count * heads, mask=mask, other=0.0)
    tl.store(of_response + node * heads + head, tl.sum(total, axis=0), mask=head < heads)
