r"""Where all rows and pairs of a batch of graphs lie, worked out in one kernel."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from specformer.nn.kernels.language import blocks, jit, tl

#: Rows, places of eigenvalues, and graphs that a program looks at at once.
_ROWS, _GRAPHS = 64, 32
#: Pairs of a program.
_PAIRS = 1024


class Places(NamedTuple):
    """The places of B graphs' rows and pairs.

    Args:
        starts: ``[B + 1]`` the first row of each graph, and that of padding.
        graph: ``[N]`` which graph a row is of; B for padding.
        first: ``[N]`` the first row of its graph, or of padding.
        offsets: ``[N + 1]`` where the pairs of each row begin.
        tokens: ``[B, max_nodes]`` eigenvalues, zeros for padding.
        weights: ``[B, max_nodes]`` one for an eigenvalue and for all places of a graph without
            nodes, else zero.
        node_share, pair_share: ``[N, 1]`` and ``[P, 1]`` one, or zero for padding.
        numbers: ``[2]`` how many rows and pairs there are, at least one.
    """

    starts: Tensor
    graph: Tensor
    first: Tensor
    offsets: Tensor
    tokens: Tensor
    weights: Tensor
    node_share: Tensor
    pair_share: Tensor
    numbers: Tensor


def batch_places(sizes: Tensor, eigenvalues: Tensor, num_pairs: int, max_nodes: int) -> Places:
    """The places of graphs of these sizes, in a batch of N rows and so many pairs; no gradient.

    Shapes: sizes ``[B]``, eigenvalues ``[N]``.
    """
    graphs, rows = len(sizes), len(eigenvalues)
    places = Places(
        starts=sizes.new_empty(graphs + 1),
        graph=sizes.new_empty(rows),
        first=sizes.new_empty(rows),
        offsets=sizes.new_empty(rows + 1),
        tokens=eigenvalues.new_empty(graphs, max_nodes),
        weights=eigenvalues.new_empty(graphs, max_nodes),
        node_share=eigenvalues.new_empty(rows, 1),
        pair_share=eigenvalues.new_empty(num_pairs, 1),
        numbers=eigenvalues.new_empty(2),
    )
    # Programs for rows come first, then those for eigenvalues, then those for pairs.
    parts = [
        blocks(rows + 1, _ROWS),
        blocks(graphs * max_nodes, _ROWS),
        max(1, blocks(num_pairs, _PAIRS)),  # one writes the numbers
    ]
    _places_found[(sum(parts),)](
        sizes.contiguous(),
        eigenvalues.contiguous(),
        *places,
        *parts[:2],
        graphs,
        rows,
        num_pairs,
        max_nodes,
        _ROWS,
        _GRAPHS,
        _PAIRS,
    )
    return places


@jit
def _places_found(
    sizes,
    eigenvalues,
    starts,
    graph,
    first,
    offsets,
    tokens,
    weights,
    node_share,
    pair_share,
    numbers,
    row_blocks,
    token_blocks,
    graphs,
    rows,
    pairs,
    size,
    ROWS: tl.constexpr,
    GRAPHS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    program = tl.program_id(0)
    if program < row_blocks:
        _rows(sizes, graph, first, offsets, node_share, program, graphs, rows, ROWS, GRAPHS)
    elif program < row_blocks + token_blocks:
        block = program - row_blocks
        _tokens(sizes, eigenvalues, starts, tokens, weights, block, graphs, size, ROWS, GRAPHS)
    else:
        block = program - row_blocks - token_blocks
        _pairs(sizes, starts, pair_share, numbers, block, graphs, pairs, GRAPHS, PAIRS)


@jit
def _rows(
    sizes,
    graph,
    first,
    offsets,
    share,
    block,
    graphs,
    rows,
    ROWS: tl.constexpr,
    GRAPHS: tl.constexpr,
):
    """Graph, first row and first pair of each row: sums over the graphs before."""
    row = block * ROWS + tl.arange(0, ROWS)
    own = tl.zeros([ROWS], tl.int32)  # how many graphs end before
    begin = tl.zeros([ROWS], tl.int32)
    pair = tl.zeros([ROWS], tl.int32)
    size = tl.zeros([ROWS], tl.int32)
    past = 0
    for low in range(0, graphs, GRAPHS):
        number = low + tl.arange(0, GRAPHS)
        there = number < graphs
        n = tl.load(sizes + number, mask=there, other=0).to(tl.int32)
        end = past + tl.cumsum(n, axis=0)
        before = (end[None, :] <= row[:, None]) & there[None, :]
        around = (end[None, :] > row[:, None]) & ((end - n)[None, :] <= row[:, None])
        own += tl.sum(before.to(tl.int32), axis=1)
        begin += tl.sum(tl.where(before, n[None, :], 0), axis=1)
        pair += tl.sum(tl.where(before, (n * n)[None, :], 0), axis=1)
        size += tl.sum(tl.where(around, n[None, :], 0), axis=1)
        past += tl.sum(n, axis=0)
    tl.store(graph + row, own.to(tl.int64), mask=row < rows)
    tl.store(first + row, begin.to(tl.int64), mask=row < rows)
    tl.store(share + row, (own < graphs).to(tl.float32), mask=row < rows)
    # Padding has no pairs, so that all of it is at the end of those there are.
    tl.store(offsets + row, (pair + (row - begin) * size).to(tl.int64), mask=row <= rows)


@jit
def _tokens(
    sizes,
    eigenvalues,
    starts,
    tokens,
    weights,
    block,
    graphs,
    size,
    ROWS: tl.constexpr,
    GRAPHS: tl.constexpr,
):
    """Eigenvalues at their places ``[B, max_nodes]``, and each graph's first row."""
    place = block * ROWS + tl.arange(0, ROWS)
    own = place // size
    position = place - own * size
    real = own < graphs
    begin = tl.zeros([ROWS], tl.int32)
    for low in range(0, graphs, GRAPHS):
        number = low + tl.arange(0, GRAPHS)
        n = tl.load(sizes + number, mask=number < graphs, other=0).to(tl.int32)
        begin += tl.sum(tl.where(number[None, :] < own[:, None], n[None, :], 0), axis=1)
    n = tl.load(sizes + own, mask=real, other=0).to(tl.int32)
    held = real & (position < n)
    value = tl.load(eigenvalues + begin + position, mask=held, other=0.0)
    tl.store(tokens + place, value, mask=real)
    tl.store(weights + place, (held | (n == 0)).to(tl.float32), mask=real)
    tl.store(starts + own, begin.to(tl.int64), mask=real & (position == 0))


@jit
def _pairs(
    sizes,
    starts,
    share,
    numbers,
    block,
    graphs,
    pairs,
    GRAPHS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Which pairs are not padding, and how many rows and pairs there are."""
    nodes = tl.zeros([GRAPHS], tl.int32)
    squares = tl.zeros([GRAPHS], tl.int32)
    for low in range(0, graphs, GRAPHS):
        number = low + tl.arange(0, GRAPHS)
        n = tl.load(sizes + number, mask=number < graphs, other=0).to(tl.int32)
        nodes += n
        squares += n * n
    count, total = tl.sum(nodes, axis=0), tl.sum(squares, axis=0)
    pair = block * PAIRS + tl.arange(0, PAIRS)
    tl.store(share + pair, (pair < total).to(tl.float32), mask=pair < pairs)
    if block == 0:
        tl.store(starts + graphs, count.to(tl.int64))
        tl.store(numbers, tl.maximum(count, 1).to(tl.float32))
        tl.store(numbers + 1, tl.maximum(total, 1).to(tl.float32))
