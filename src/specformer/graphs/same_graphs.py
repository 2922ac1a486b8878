"""Find graphs that occur twice in one set, or in two, whatever the order of their nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specformer.graphs.graph_set import GraphSet

#: Rounds of refinement: a colour depends on nodes up to this many bonds away.
_ROUNDS = 12
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


def _hashes(graphs: GraphSet) -> NDArray[np.uint64]:
    """One number per graph ``[G]``, the same for every order of its nodes."""
    first, second = graphs.edge_index + np.repeat(graphs.node_start[:-1], graphs.num_edges)
    bonds = _with_numbers(_of_rows(graphs.edge_feat), graphs.edge_x)
    colours = _with_numbers(_of_rows(graphs.node_feat), graphs.x)
    for _ in range(_ROUNDS):
        heard = np.zeros_like(colours)
        np.add.at(heard, second, _mixed(colours[first] + bonds))
        np.add.at(heard, first, _mixed(colours[second] + bonds))
        colours = _mixed(colours * _STEP + heard)
    return np.add.reduceat(_mixed(colours), graphs.node_start[:-1])


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
