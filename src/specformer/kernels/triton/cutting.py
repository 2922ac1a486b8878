r"""Batches copied out of the arrays of a data set by one kernel."""

from __future__ import annotations

from torch import Tensor

from specformer.kernels.triton.language import jit, power_of_two, tl

#: Rows or pairs that a program copies at once, and graphs that it reads at once.
_BLOCK, _GRAPHS = 512, 1024
#: Programs per graph, because one would be slow for a large graph.
_PARTS = 8


def batch_cut(
    index: Tensor,
    sizes: Tensor,
    starts: tuple[Tensor, Tensor],
    of_rows: tuple[Tensor, Tensor],
    of_pairs: tuple[Tensor, Tensor],
    num_nodes: int,
    num_pairs: int,
) -> dict[str, Tensor]:
    """:func:`specformer.kernels.segments.cut`, with the same arguments."""
    (nodes, values), (bond, vectors) = of_rows, of_pairs
    columns = nodes.shape[1]
    out = {
        "sizes": sizes.new_empty(len(index)),
        "nodes": index.new_empty(num_nodes, columns),
        "eigenvalues": values.new_empty(num_nodes),
        "bond": index.new_empty(num_pairs),
        "eigenvectors": vectors.new_empty(num_pairs),
    }
    # The programs for padding come after those of all graphs.
    _batch_cut[(len(index) + 1, _PARTS)](
        *(index.contiguous(), sizes, *starts, nodes, values, bond, vectors, *out.values()),
        *(len(index), num_nodes, num_pairs, columns),
        *(_BLOCK, min(_GRAPHS, power_of_two(len(index)))),
    )
    return out


@jit
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
    columns,
    BLOCK: tl.constexpr,
    GRAPHS: tl.constexpr,
):
    own, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    begin, corner = _before(index, sizes, own, GRAPHS)
    real = own < graphs
    chosen = tl.load(index + own, mask=real, other=0)
    n = tl.load(sizes + chosen, mask=real, other=0).to(tl.int32)
    end = tl.where(real, begin + n, rows)
    first = tl.load(row_start + chosen) - begin
    for start in range(begin + part * BLOCK, end, parts * BLOCK):
        row = start + tl.arange(0, BLOCK)
        there = row < end
        value = tl.load(values + first + row, mask=there & real, other=0.0)
        tl.store(values_out + row, value, mask=there)
        for column in range(columns):
            place = nodes + (first + row) * columns + column
            feature = tl.load(place, mask=there & real, other=0)
            tl.store(nodes_out + row * columns + column, feature.to(tl.int64), mask=there)
    end = tl.where(real, corner + n * n, pairs)
    first = tl.load(pair_start + chosen) - corner
    for start in range(corner + part * BLOCK, end, parts * BLOCK):
        pair = start + tl.arange(0, BLOCK)
        there = pair < end
        value = tl.load(vectors + first + pair, mask=there & real, other=0.0)
        tl.store(vectors_out + pair, value, mask=there)
        kind = tl.load(bond + first + pair, mask=there & real, other=0)
        tl.store(bond_out + pair, kind.to(tl.int64), mask=there)
    if part == 0:
        tl.store(sizes_out + own, n.to(tl.int64), mask=real)


@jit
def _before(index, sizes, own, GRAPHS: tl.constexpr):
    """Number of rows and of pairs of all graphs before this one."""
    nodes = tl.zeros([GRAPHS], tl.int32)
    squares = tl.zeros([GRAPHS], tl.int32)
    for low in range(0, own, GRAPHS):
        number = low + tl.arange(0, GRAPHS)
        chosen = tl.load(index + number, mask=number < own, other=0)
        n = tl.load(sizes + chosen, mask=number < own, other=0).to(tl.int32)
        nodes += n
        squares += n * n
    return tl.sum(nodes, axis=0), tl.sum(squares, axis=0)
