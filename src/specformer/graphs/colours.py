"""Colour refinement of many graphs: which of them occur twice, and counts of their fragments.

A node's colour is a hash of its features. In each round of refinement it also takes in the colours
of its neighbours and the bonds to them, so after r rounds it stands for everything up to r bonds
away (Weisfeiler and Leman). The order of the nodes does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from specformer.graphs.graph_set import GraphSet, runs_within

#: Rounds after which graphs are compared.
_ROUNDS = 12
#: Rounds up to which fragments are counted.
_RADIUS = 1
#: Nodes of the graphs whose fragments are counted at once.
_AT_ONCE = 100_000
_STEP = np.uint64(0x9E3779B97F4A7C15)


def shared_with(graphs: GraphSet, others: GraphSet) -> NDArray[np.bool_]:
    """Return which graphs ``[G]`` are also among the others: same nodes, bonds and features.

    Graphs are compared by the colours of their nodes after rounds of refinement. Equal graphs are
    always found; different graphs with the same colours count as equal too. Targets do not count.
    """
    return np.isin(_hashes(graphs), _hashes(others))


def copies(graphs: GraphSet) -> tuple[int, int]:
    """How many graphs repeat an earlier one, and how many of these have other targets."""
    _, first, place = np.unique(_hashes(graphs), return_index=True, return_inverse=True)
    again = np.delete(np.arange(len(graphs)), first)
    if graphs.y is None or not len(again):
        return len(again), 0
    ours, theirs = graphs.y[again], graphs.y[first[place[again]]]
    differ = (ours != theirs) & ~np.isnan(ours) & ~np.isnan(theirs)
    return len(again), int(differ.any(axis=1).sum())


def fragment_counts(graphs: GraphSet, size: int) -> NDArray[np.int16]:
    """How often each fragment occurs in each graph ``[G, size]``: a circular fingerprint.

    Fragments are: a node with all its categories, the same with its neighbours and the bonds to
    them, and every single category of a node or a bond. They are hashed to ``size`` columns, so
    several may share one. Equal fragments of any two sets have the same column. Numbers (``x`` and
    ``edge_x``) are ignored. Counts are at most 32,767.

    Example:
        >>> star = GraphSet(num_nodes=[4], num_edges=[3], edge_index=[[0, 0, 0], [1, 2, 3]])
        >>> counts = fragment_counts(star, 1024)
        >>> sorted(counts[counts > 0].tolist())  # a centre, 3 leaves, 3 bonds; 4 nodes, twice
        [1, 3, 3, 4, 4]
    """
    counts = np.empty((len(graphs), size), dtype=np.int16)
    for first, last in runs_within(graphs.num_nodes, _AT_ONCE):
        some = graphs.subset(np.arange(first, last))
        total = np.zeros(len(some) * size, dtype=np.int64)
        for fragments, owner in _fragments(some):
            column = (fragments % np.uint64(size)).astype(np.int64)
            total += np.bincount(owner * size + column, minlength=len(total))
        counts[first:last] = total.reshape(len(some), size).clip(max=np.iinfo(np.int16).max)
    return counts


def _fragments(graphs: GraphSet) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Hashes of fragments, and the graph of each."""
    numbers = np.arange(len(graphs))
    nodes, bonds = np.repeat(numbers, graphs.num_nodes), np.repeat(numbers, graphs.num_edges)
    colours = _refined(graphs, _of_rows(graphs.node_feat), _of_rows(graphs.edge_feat))
    yield from ((found, nodes) for found in islice(colours, _RADIUS + 1))
    columns = [(column, nodes) for column in graphs.node_feat.T]
    columns += [(column, bonds) for column in graphs.edge_feat.T]
    for place, (column, owner) in enumerate(columns):
        # Categories have 31 bits, so those of one column are never those of another.
        yield _mixed(column.astype(np.uint64) + (np.uint64(place + 1) << np.uint64(32))), owner


def _hashes(graphs: GraphSet) -> NDArray[np.uint64]:
    """One number per graph ``[G]``, the same for every order of its nodes."""
    nodes = _with_numbers(_of_rows(graphs.node_feat), graphs.x)
    bonds = _with_numbers(_of_rows(graphs.edge_feat), graphs.edge_x)
    colours = next(islice(_refined(graphs, nodes, bonds), _ROUNDS, None))
    return np.add.reduceat(_mixed(colours), graphs.node_start[:-1])


def _refined(
    graphs: GraphSet, colours: NDArray[np.uint64], bonds: NDArray[np.uint64]
) -> Iterator[NDArray[np.uint64]]:
    """Colours of the nodes after 0, 1, 2, … rounds of refinement."""
    first, second = graphs.edge_index + np.repeat(graphs.node_start[:-1], graphs.num_edges)
    bonds = bonds * _STEP  # a bond of kind 1 to a node of kind 2 is not one of kind 2 to kind 1
    while True:
        yield colours
        heard = np.zeros_like(colours)
        np.add.at(heard, second, _mixed(colours[first] + bonds))
        np.add.at(heard, first, _mixed(colours[second] + bonds))
        colours = _mixed(colours * _STEP + heard)


def _with_numbers(
    colours: NDArray[np.uint64], numbers: NDArray[np.float32] | None
) -> NDArray[np.uint64]:
    if numbers is None:
        return colours
    numbers = numbers + np.float32(0)  # turns -0.0 into 0.0, which has other bits
    return _mixed(colours * _STEP + _of_rows(numbers.view(np.uint32)))


def _of_rows(table: NDArray[np.integer]) -> NDArray[np.uint64]:
    """One hash per row of whole numbers."""
    found = np.zeros(len(table), dtype=np.uint64)
    for column in table.T:
        found = _mixed(found * _STEP + column.astype(np.uint64) + np.uint64(1))
    return found


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits: every output bit depends on every input bit (the finaliser of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
