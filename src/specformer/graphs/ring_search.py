"""The rings of many small graphs: chordless cycles of atoms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specformer.errors import ConfigError, GraphError
from specformer.graphs.graph_set import GraphSet, ragged, starts

#: How many bonds are searched at once; more do not fit into a processor's cache.
_BONDS_AT_ONCE = 1 << 13
#: How many paths are held at most; a graph with more is refused.
_MOST_PATHS = 1 << 22


@dataclass(frozen=True, eq=False)
class RingSet:
    """Every ring of G graphs, once.

    Args:
        counts: ``[G]`` number of rings of each graph.
        atoms: ``[ΣR, L]`` the atoms of each ring along its bonds, numbered within the graph; −1
            beyond its length.
    """

    counts: NDArray[np.int64]
    atoms: NDArray[np.int32]

    @property
    def rows(self) -> NDArray[np.int32]:
        """The atoms; without rings one row of −1, because padding of batches reads a row."""
        return self.atoms if len(self.atoms) else np.full((1, self.atoms.shape[1]), -1, np.int32)


def find_rings(graphs: GraphSet, max_length: int) -> RingSet:
    """All chordless cycles of at most ``max_length`` atoms.

    Paths grow atom by atom, in many graphs at once. A ring is found from its least atom r: as a
    path a, r, b, … with a < b and all others above r, when its end is bonded to a.
    """
    if max_length < 3:
        raise ConfigError(f"rings of at most {max_length} atoms do not exist: the smallest has 3.")
    found: list[RingSet] = []
    # A new part begins where the number of bonds passes a multiple of the limit.
    parts = np.unique(graphs.edge_start[:-1] // _BONDS_AT_ONCE, return_index=True)[1].tolist()
    todo = [slice(*ends) for ends in zip(parts, [*parts[1:], len(graphs)], strict=True)][::-1]
    while todo:
        part = todo.pop()
        try:
            found.append(_searched(graphs, part, max_length))
        except _TooManyPathsError:
            if part.stop - part.start == 1:
                raise GraphError(
                    f"{graphs.name}: graph {part.start} has too many paths of {max_length} atoms "
                    "to look for rings; lower model.max_ring."
                ) from None
            middle = (part.start + part.stop) // 2
            todo += [slice(middle, part.stop), slice(part.start, middle)]
    return RingSet(
        np.concatenate([one.counts for one in found]), np.concatenate([one.atoms for one in found])
    )


class _TooManyPathsError(Exception):
    """The graphs must be searched in smaller parts."""


def _searched(graphs: GraphSet, part: slice, max_length: int) -> RingSet:
    """The rings of some of the graphs, which are searched as one large graph."""
    sizes = graphs.num_nodes[part]
    first = starts(sizes)
    own = slice(*graphs.edge_start[[part.start, part.stop]])
    ends = graphs.edge_index[:, own].astype(np.int64)
    ends = _core(ends + np.repeat(first[:-1], graphs.num_edges[part]), int(first[-1]))
    found = [
        np.pad(ring, ((0, 0), (0, max_length - ring.shape[1])), constant_values=-1)
        for ring in _cycles(ends, int(first[-1]), max_length)
    ]
    atoms = np.concatenate([np.empty((0, max_length), np.int64), *found])
    graph = np.searchsorted(first, atoms[:, 0], side="right") - 1
    order = np.argsort(graph, kind="stable")
    local = np.where(atoms < 0, -1, atoms - first[graph, None])[order]
    return RingSet(np.bincount(graph, minlength=len(sizes)), local.astype(np.int32))


def _core(ends: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """The bonds ``[2, E]`` that are left when dangling chains are removed, bond by bond."""
    ends = ends[:, ends[0] != ends[1]]
    while True:
        degree = np.bincount(ends.ravel(), minlength=num_nodes)
        kept = (degree[ends] > 1).all(axis=0)
        if kept.all():
            return ends
        ends = ends[:, kept]


def _cycles(ends: NDArray[np.int64], num_nodes: int, max_length: int) -> list[NDArray[np.int64]]:
    """Chordless cycles, one array ``[rings, length]`` per length."""
    one, other = np.concatenate([ends, ends[::-1]], axis=1)
    order = np.lexsort((other, one))
    one, other = one[order], other[order]
    row = starts(np.bincount(one, minlength=num_nodes))
    keys = one * num_nodes + other

    def bonded(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
        key = left * num_nodes + right
        place = np.searchsorted(keys, key)
        return keys[np.minimum(place, len(keys) - 1)] == key

    def grown(paths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Extend every path by every neighbour of its last atom that is above its second atom."""
        count = np.diff(row)[paths[:, -1]]
        if int(count.sum()) > _MOST_PATHS:
            raise _TooManyPathsError
        path = np.repeat(np.arange(len(paths)), count)
        new = other[ragged(row[paths[:, -1]], count)]
        above = new > paths[path, 1]
        return np.column_stack([paths[path[above]], new[above]])

    if not len(keys):
        return []
    rising = one > other  # from a to the least atom r
    paths = grown(np.column_stack([one[rising], other[rising]]))
    paths = paths[paths[:, 2] > paths[:, 0]]
    found = []
    while len(paths):
        closed = bonded(paths[:, -1], paths[:, 0])
        found.append(paths[closed])
        paths = paths[~closed]
        if paths.shape[1] == max_length:
            break
        paths = grown(paths)
        # No chord to an inner atom; the path's own last bond is not a chord.
        for within in range(1, paths.shape[1] - 2):
            paths = paths[~bonded(paths[:, -1], paths[:, within])]
        paths = paths[(paths[:, -1] != paths[:, -3])]
    return found
