r"""Messages computed, weighted and summed at their targets, in passes over all pairs of nodes.

Pair (i, j) of a graph of n nodes sends from j to i. The pairs of a target are contiguous, those of
a source are n apart, so that nothing needs to be sorted for either sum. A weight is given,
:math:`w = S`, or comes from a softmax, :math:`w = e^{S - \ell_i}`, where :math:`\ell_i` is the
log-sum-exp.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from specformer.kernels.segments import PairIndex
from specformer.kernels.tracing import first_order
from specformer.kernels.triton.language import (
    COLUMNS,
    LOG2_E,
    blocks,
    clear_padding,
    gelu_slope,
    jit,
    messages,
    power_of_two,
    tl,
)


class Tile(NamedTuple):
    """Pairs and channels that a program takes at once, and its number of warps."""

    rows: int
    columns: int
    warps: int

    def fitted(self, channels: int) -> Tile:
        """The tile with fewer columns, if there are fewer channels."""
        return self if channels % self.columns == 0 else self._replace(columns=COLUMNS)

    def grid(self, node: Tensor) -> tuple[int, int]:
        """One program per row and block of columns."""
        rows, channels = node.shape
        return rows, blocks(channels, self.fitted(channels).columns)

    def options(self, node: Tensor) -> dict[str, int]:
        """Launch options of kernels."""
        rows, columns, warps = self.fitted(node.shape[1])
        return {"ROWS": rows, "COLUMNS": columns, "num_warps": warps}


#: For kernels over a target's pairs, forward and backward: one warp, so that sums stay in it.
FORWARD, BACKWARD = Tile(8, 64, 1), Tile(8, 128, 1)
#: For the kernel over the pairs of a group of sources, whose products need at least 16 rows.
SOURCES = Tile(16, COLUMNS, 2)
#: Programs of that kernel: a few for each of 132 multiprocessors.
_PROGRAMS = 8192


def pair_sum(
    node: Tensor, kind: Tensor, weight: Tensor, index: PairIndex, softmax: bool = False
) -> Tensor:
    r"""Sum of the messages from all nodes of a graph to each node, weighted for every channel.

    .. math::
        y_i = \sum_j w_{ij} \odot \mathrm{GELU}(a_j + b_{k(i, j)}), \qquad w_{ij} = S_{ij}
        \quad\text{or}\quad w_{ij} = e^{S_{ij} - \ell_i}, \; \ell_i = \log \sum_j e^{S_{ij}}

    With ``softmax`` the weights are a softmax, of which only ℓ is stored. It takes one pass over
    ``[P, channels]`` forward and two backward. Messages are never stored.

    Shapes: node ``[N, channels]`` (a), kind ``[kinds, channels]`` (b), weight ``[P, channels]``
    (S), output as node.
    """
    return _PairSum.apply(node, kind, weight, index, softmax)


class _PairSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, node: Tensor, kind: Tensor, weight: Tensor, index: PairIndex, softmax: bool
    ) -> Tensor:
        node, kind, weight = node.contiguous(), kind.contiguous(), weight.contiguous()
        out = torch.empty_like(node)
        lse = torch.empty_like(node) if softmax else out  # a placeholder
        options = {"SOFTMAX": softmax, **FORWARD.options(node)}
        _sums[FORWARD.grid(node)](node, kind, weight, out, lse, *index, node.shape[1], **options)
        ctx.save_for_backward(node, kind, weight, *((out, lse) if softmax else ()))
        ctx.index = index
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        node, kind, weight, *shares = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_weight = torch.empty_like(weight)
        out, lse = shares or (gradient, None)
        given = (node, kind, weight, out, gradient if lse is None else lse, gradient)
        sizes = (len(node), len(weight), node.shape[1])
        options = {"SOFTMAX": lse is not None, **BACKWARD.options(node)}
        _of_weights[BACKWARD.grid(node)](*given, of_weight, *ctx.index, *sizes, **options)
        of_messages = message_gradients(node, kind, weight, gradient, ctx.index, lse)
        return *of_messages, of_weight, None, None


def message_gradients(
    node: Tensor,
    kind: Tensor,
    weight: Tensor,
    gradient: Tensor,
    index: PairIndex,
    lse: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of ``node`` and of ``kind``; with ``lse``, weights are logits."""
    rows, channels = node.shape
    wide = SOURCES.grid(node)[1]
    # Small groups leave many parts of sums to add, large groups give few programs.
    group = power_of_two(rows * wide // _PROGRAMS)
    parts = blocks(rows, group)
    of_node = torch.empty_like(node)
    of_kind = kind.new_empty(parts, *kind.shape)
    given = (node, kind, weight, node if lse is None else lse, gradient)
    _of_messages[(parts, wide)](
        *given,
        of_node,
        of_kind,
        *index,
        *(rows, len(kind), channels),
        SOFTMAX=lse is not None,
        GROUP=group,
        KINDS=power_of_two(len(kind), least=16),  # the smallest size that products support
        **SOURCES.options(node),
        num_stages=1,  # most sources have one block of pairs, so there is nothing to prefetch
    )
    return of_node, of_kind.sum(dim=0)


@jit
def _sums(
    node,
    kind,
    weight,
    out,
    lse,
    offsets,
    first,
    bond,
    channels,
    SOFTMAX: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    r"""Sums :math:`y_i = \sum_j w_{ij} m_{ij}` of one target and block of columns, and ℓ / ln 2."""
    target = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    source = tl.load(first + target)
    top = tl.full([COLUMNS], float("-inf"), tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    summed = tl.zeros([COLUMNS], tl.float32)
    for start in range(begin, end, ROWS):
        pair = start + tl.arange(0, ROWS)
        real = pair < end
        mask = real[:, None] & inside[None, :]
        k = tl.load(bond + pair, mask=real, other=0)
        message = messages(node, kind, k, source + pair - begin, column, mask, channels)
        w = tl.load(weight + pair[:, None] * channels + column[None, :], mask=mask, other=0.0)
        if SOFTMAX:
            x = w * LOG2_E
            higher = tl.maximum(top, tl.max(tl.where(real[:, None], x, float("-inf")), axis=0))
            shrink = tl.exp2(top - higher)
            power = tl.where(real[:, None], tl.exp2(x - higher[None, :]), 0.0)
            total = total * shrink + tl.sum(power, axis=0)
            summed = summed * shrink + tl.sum(power * message, axis=0)
            top = higher
        else:
            summed += tl.sum(w * message, axis=0)
    place = target * channels + column
    if SOFTMAX:
        full = total > 0.0
        total = tl.where(full, total, 1.0)
        summed = summed / total
        tl.store(lse + place, tl.where(full, top, 0.0) + tl.log2(total), mask=inside)
    tl.store(out + place, summed, mask=inside)


@jit
def _of_weights(
    node,
    kind,
    weight,
    summed,
    lse,
    gradient,
    out,
    offsets,
    first,
    bond,
    targets,
    pairs,
    channels,
    SOFTMAX: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    r"""Gradients of the weights of one target and block of columns, and zeros for padding.

    :math:`g_i m_{ij}` for given weights. For a softmax, :math:`w_{ij} g_i (m_{ij} - y_i)`, because
    :math:`y_i` is the mean message.
    """
    target = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    begin, end = tl.load(offsets + target), tl.load(offsets + target + 1)
    source = tl.load(first + target)
    place = target * channels + column
    g = tl.load(gradient + place, mask=inside, other=0.0)
    if SOFTMAX:
        mean = tl.load(summed + place, mask=inside, other=0.0)
        level = tl.load(lse + place, mask=inside, other=0.0)
    for start in range(begin, end, ROWS):
        pair = start + tl.arange(0, ROWS)
        real = pair < end
        mask = real[:, None] & inside[None, :]
        k = tl.load(bond + pair, mask=real, other=0)
        message = messages(node, kind, k, source + pair - begin, column, mask, channels)
        at = pair[:, None] * channels + column[None, :]
        if SOFTMAX:
            x = tl.load(weight + at, mask=mask, other=0.0)
            share = tl.exp2(x * LOG2_E - level[None, :])
            tl.store(out + at, share * g[None, :] * (message - mean[None, :]), mask=mask)
        else:
            tl.store(out + at, g[None, :] * message, mask=mask)
    clear_padding(out, offsets, target, targets, pairs, column, channels, ROWS)


@jit
def _of_messages(
    node,
    kind,
    weight,
    lse,
    gradient,
    of_node,
    of_kinds,
    offsets,
    first,
    bond,
    sources,
    kinds,
    channels,
    SOFTMAX: tl.constexpr,
    GROUP: tl.constexpr,
    KINDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    r"""Gradients of ``node`` and ``kind`` for a group of sources.

    A source sends the same message over all bonds of a kind, so :math:`w_{ij} g_i` is first summed
    by kind, as a product with a matrix of ones and zeros, which three TF32 products compute without
    loss. The result is multiplied by the derivative of the message. Its sum over kinds is the
    gradient of the node, its sum over sources that of the kind, in parts by group.
    """
    group = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < channels
    every = tl.arange(0, KINDS)
    known = (every < kinds)[:, None] & inside[None, :]
    of_kind = tl.load(kind + every[:, None] * channels + column[None, :], mask=known, other=0.0)
    total = tl.zeros([KINDS, COLUMNS], tl.float32)
    for step in range(GROUP):
        # Far apart, so that no program has two sources of one large graph.
        source = group + step * tl.num_programs(0)
        real = source < sources
        begin = tl.load(offsets + source, mask=real, other=0)
        size = tl.load(offsets + source + 1, mask=real, other=0) - begin
        row = tl.load(first + source, mask=real, other=0)
        corner = begin - (source - row) * (size - 1)
        place = source * channels + column
        at_source = tl.load(node + place, mask=inside & real, other=0.0)
        summed = tl.zeros([KINDS, COLUMNS], tl.float32)
        for start in range(0, size, ROWS):
            i = start + tl.arange(0, ROWS)
            there = i < size
            mask = there[:, None] & inside[None, :]
            pair = corner + i * size
            w = tl.load(weight + pair[:, None] * channels + column[None, :], mask=mask, other=0.0)
            at = (row + i)[:, None] * channels + column[None, :]
            if SOFTMAX:
                w = tl.exp2(w * LOG2_E - tl.load(lse + at, mask=mask, other=0.0))
            g = tl.load(gradient + at, mask=mask, other=0.0)
            k = tl.load(bond + pair, mask=there, other=0)
            # Beyond the targets a weight may be anything, even infinite.
            part = tl.where(mask, w * g, 0.0)
            hot = (k[None, :] == every[:, None]).to(tl.float32)
            summed = tl.dot(hot, part, summed, input_precision="tf32x3")
        summed *= gelu_slope(at_source[None, :] + of_kind)
        tl.store(of_node + place, tl.sum(summed, axis=0), mask=inside & real)
        total += summed
    at = (group * kinds + every)[:, None] * channels + column[None, :]
    tl.store(of_kinds + at, total, mask=known)
