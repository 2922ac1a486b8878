r"""The passes over all pairs of nodes that weigh messages and sum them at their targets.

Pair (i, j) of a graph of n nodes sends from j to i. The pairs of a target follow one another; those
of a source are n apart. So both sums are over known places, and nothing is sorted. A weight is
given, :math:`w = S`, or is a share, :math:`w = e^{S - \ell_i}`, with :math:`\ell_i` the logarithm
of the sum of powers.
"""

from __future__ import annotations

from specformer.kernels.triton.language import LOG2_E, clear_padding, gelu_slope, jit, messages, tl


@jit
def forward(
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
def of_weights(
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
    r"""Gradients in the weights of one target and block of columns, and zeros for padding.

    :math:`g_i m_{ij}` of given weights; of shares, in S, :math:`w_{ij} g_i (m_{ij} - y_i)`, for
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
def of_messages(
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
    r"""Gradients of what nodes and kinds add to messages, for a group of sources.

    A source sends the same over all bonds of a kind, so :math:`w_{ij} g_i` is first summed by kind,
    as a product with a matrix of ones and zeros, in which three TF32 products lose nothing. Times
    the slope of the message, its sum over kinds is the node's, that over sources the kind's, in
    parts by group.
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
            # Beyond the targets a share may be anything, even infinite.
            part = tl.where(mask, w * g, 0.0)
            hot = (k[None, :] == every[:, None]).to(tl.float32)
            summed = tl.dot(hot, part, summed, input_precision="tf32x3")
        summed *= gelu_slope(at_source[None, :] + of_kind)
        tl.store(of_node + place, tl.sum(summed, axis=0), mask=inside & real)
        total += summed
    at = (group * kinds + every)[:, None] * channels + column[None, :]
    tl.store(of_kinds + at, total, mask=known)
