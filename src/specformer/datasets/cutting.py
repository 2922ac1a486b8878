r"""Batches cut from the arrays of a whole data set by one GPU kernel, in Triton."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

try:
    import triton
    from triton import language as tl
except ImportError:  # the module can then be imported, for its documentation, but not run
    triton = tl = None

#: Rows or pairs of a program, and graphs that it looks at at once.
_BLOCK, _GRAPHS = 256, 32


def cut(
    index: Tensor,
    sizes: Tensor,
    starts: tuple[Tensor, Tensor],
    of_rows: tuple[Tensor, Tensor],
    of_pairs: tuple[Tensor, Tensor],
    num_nodes: int,
    num_pairs: int,
) -> dict[str, Tensor]:
    """The arrays of these graphs one after another, then zeros.

    Shapes: index ``[B]``; of all G graphs, sizes ``[G]``, starts of rows and of pairs ``[G + 1]``;
    of_rows ``[ΣN, columns]`` integers and ``[ΣN]``, of_pairs ``[ΣN²]`` integers and ``[ΣN²]``.
    """
    (nodes, values), (bond, vectors) = of_rows, of_pairs
    columns = nodes.shape[1]
    out = {
        "sizes": sizes.new_empty(len(index)),
        "nodes": index.new_empty(num_nodes, columns),
        "eigenvalues": values.new_empty(num_nodes),
        "bond": index.new_empty(num_pairs),
        "eigenvectors": vectors.new_empty(num_pairs),
    }
    row_blocks = -(-max(num_nodes, 1) // _BLOCK)
    _batch_cut[(row_blocks + -(-num_pairs // _BLOCK),)](
        index.contiguous(),
        sizes,
        *starts,
        nodes,
        values,
        bond,
        vectors,
        *out.values(),
        len(index),
        num_nodes,
        num_pairs,
        row_blocks,
        columns,
        _BLOCK,
        _GRAPHS,
        num_warps=8,
    )
    return out


def _jit(function: Any) -> Any:
    """``triton.jit``, or the plain function without Triton.

    Numbers that change from batch to batch are not compiled in: each would cost a compilation.
    """
    if triton is None:
        return function
    named = inspect.signature(function).parameters
    varying = [name for name in ("graphs", "rows", "pairs", "row_blocks") if name in named]
    return triton.jit(function, do_not_specialize=varying)


@_jit
def _batch_cut(
    index,
    sizes,
    row_start,
    pair_start,
    nodes,
    values,
    bond,
    vectors,
    sizes_out,
    nodes_out,
    values_out,
    bond_out,
    vectors_out,
    graphs,
    rows,
    pairs,
    row_blocks,
    columns,
    BLOCK: tl.constexpr,
    GRAPHS: tl.constexpr,
):
    program = tl.program_id(0)
    if program < row_blocks:
        row, place, real = _place(index, sizes, row_start, program, graphs, False, BLOCK, GRAPHS)
        there = row < rows
        value = tl.load(values + place, mask=real & there, other=0.0)
        tl.store(values_out + row, value, mask=there)
        for column in range(columns):
            feature = tl.load(nodes + place * columns + column, mask=real & there, other=0)
            tl.store(nodes_out + row * columns + column, feature.to(tl.int64), mask=there)
    else:
        block = program - row_blocks
        pair, place, real = _place(index, sizes, pair_start, block, graphs, True, BLOCK, GRAPHS)
        there = pair < pairs
        value = tl.load(vectors + place, mask=real & there, other=0.0)
        tl.store(vectors_out + pair, value, mask=there)
        kind = tl.load(bond + place, mask=real & there, other=0)
        tl.store(bond_out + pair, kind.to(tl.int64), mask=there)
    if program == 0:
        for low in range(0, graphs, GRAPHS):
            number = low + tl.arange(0, GRAPHS)
            chosen = tl.load(index + number, mask=number < graphs, other=0)
            n = tl.load(sizes + chosen, mask=number < graphs, other=0)
            tl.store(sizes_out + number, n, mask=number < graphs)


@_jit
def _place(
    index,
    sizes,
    start,
    block,
    graphs,
    SQUARE: tl.constexpr,
    BLOCK: tl.constexpr,
    GRAPHS: tl.constexpr,
):
    """Numbers in the batch of rows or of pairs, their places in the store, and if there are such.

    A number's graph is as many as end before it.
    """
    number = block * BLOCK + tl.arange(0, BLOCK)
    own = tl.zeros([BLOCK], tl.int32)
    begin = tl.zeros([BLOCK], tl.int32)
    past = 0
    for low in range(0, graphs, GRAPHS):
        graph = low + tl.arange(0, GRAPHS)
        there = graph < graphs
        chosen = tl.load(index + graph, mask=there, other=0)
        n = tl.load(sizes + chosen, mask=there, other=0).to(tl.int32)
        if SQUARE:
            n = n * n
        end = past + tl.cumsum(n, axis=0)
        before = (end[None, :] <= number[:, None]) & there[None, :]
        own += tl.sum(before.to(tl.int32), axis=1)
        begin += tl.sum(tl.where(before, n[None, :], 0), axis=1)
        past += tl.sum(n, axis=0)
    real = own < graphs
    chosen = tl.load(index + own, mask=real, other=0)
    first = tl.load(start + chosen, mask=real, other=0)
    return number, first + number - begin, real
