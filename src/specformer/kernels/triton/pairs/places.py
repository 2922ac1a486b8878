r"""Where all rows and pairs of a batch of graphs lie, worked out in one kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from specformer.kernels.triton.language import blocks, jit, power_of_two, tl

#: Rows that a program writes at once, and the most graphs that it looks at at once.
_ROWS, _GRAPHS = 64, 1024
#: Pairs of a program.
_PAIRS = 1024


class Places(NamedTuple):
    """The places of B graphs' rows and pairs.

    Args:
        starts: ``[B + 1]`` the first row of each graph, and that of padding.
        graph: ``[N]`` which graph a row is of; B for padding.
        first: ``[N]`` the first row of its graph, or of padding.
        offsets: ``[N + 1]`` where the pairs of each row begin.
        node_share, pair_share: ``[N, 1]`` and ``[P, 1]`` one, or zero for padding.
        numbers: ``[2]`` how many rows and pairs there are, at least one.
    """

    starts: Tensor
    graph: Tensor
    first: Tensor
    offsets: Tensor
    node_share: Tensor
    pair_share: Tensor
    numbers: Tensor


def batch_places(sizes: Tensor, num_rows: int, num_pairs: int) -> Places:
    """The places of graphs of these sizes ``[B]``, in a batch of that many rows and pairs.

    Every program adds up the sizes itself, in one or two reads: sums that depend on one another
    would take a kernel each.
    """
    graphs = len(sizes)
    some = torch.empty(0, dtype=torch.float32, device=sizes.device)
    places = Places(
        starts=sizes.new_empty(graphs + 1),
        graph=sizes.new_empty(num_rows),
        first=sizes.new_empty(num_rows),
        offsets=sizes.new_empty(num_rows + 1),
        node_share=some.new_empty(num_rows, 1),
        pair_share=some.new_empty(num_pairs, 1),
        numbers=some.new_empty(2),
    )
    # Programs for graphs come first, with one for padding, then those for pairs.
    _places_found[(graphs + 1 + blocks(num_pairs, _PAIRS),)](
        sizes.contiguous(),
        *places,
        graphs,
        num_rows,
        num_pairs,
        _ROWS,
        min(power_of_two(graphs), _GRAPHS),
        _PAIRS,
    )
    return places


@jit
def _places_found(
    sizes,
    starts,
    graph,
    first,
    offsets,
    node_share,
    pair_share,
    numbers,
    graphs,
    rows,
    pairs,
    ROWS: tl.constexpr,
    GRAPHS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    program = tl.program_id(0)
    own = tl.minimum(program, graphs)  # that of padding comes after all graphs
    begin, corner = _before(sizes, own, GRAPHS)
    if program <= graphs:
        size = tl.load(sizes + own, mask=own < graphs, other=0).to(tl.int32)
        end = tl.where(own < graphs, begin + size, rows)
        for start in range(begin, end, ROWS):
            row = start + tl.arange(0, ROWS)
            there = row < end
            tl.store(graph + row, own.to(tl.int64), mask=there)
            tl.store(first + row, begin.to(tl.int64), mask=there)
            tl.store(node_share + row, (own < graphs).to(tl.float32), mask=there)
            # Padding has no pairs, so that all of it is at the end of those there are.
            tl.store(offsets + row, (corner + (row - begin) * size).to(tl.int64), mask=there)
        tl.store(starts + own, begin.to(tl.int64))
        if own == graphs:
            tl.store(offsets + rows, corner.to(tl.int64))
            tl.store(numbers, tl.maximum(begin, 1).to(tl.float32))
            tl.store(numbers + 1, tl.maximum(corner, 1).to(tl.float32))
    else:
        pair = (program - graphs - 1) * PAIRS + tl.arange(0, PAIRS)
        tl.store(pair_share + pair, (pair < corner).to(tl.float32), mask=pair < pairs)


@jit
def _before(sizes, own, GRAPHS: tl.constexpr):
    """Rows and pairs of the graphs before one."""
    nodes = tl.zeros([GRAPHS], tl.int32)
    squares = tl.zeros([GRAPHS], tl.int32)
    for low in range(0, own, GRAPHS):
        number = low + tl.arange(0, GRAPHS)
        n = tl.load(sizes + number, mask=number < own, other=0).to(tl.int32)
        nodes += n
        squares += n * n
    return tl.sum(nodes, axis=0), tl.sum(squares, axis=0)
