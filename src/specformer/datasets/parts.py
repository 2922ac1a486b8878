r"""A graph in several ``.npz`` files, of which each process reads its own part.

Every file ``part-….npz`` of a folder holds some nodes, in order: ``first``, the number of the first
of them, ``num_nodes`` of the whole graph, and, each if there is such a thing, their rows of ``x``
``[m, features]``, ``y`` ``[m]``, ``train_mask``, ``val_mask`` and ``test_mask`` ``[m]``. Its
``edge_index`` ``[2, E]``, perhaps with ``edge_weight`` ``[E]``, holds some of the edges, any of
them: nodes are numbered over the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array

from specformer.errors import GraphError
from specformer.files.npz_archive import naming, read_arrays
from specformer.graphs.graph import MASKS
from specformer.spectrum.sparse import Parts

_NEEDED = ("edge_index", "num_nodes", "first")
_SIZES = ("num_nodes", "first")
_NODES = ("x", "y", *MASKS)


@dataclass(frozen=True)
class GraphRows:
    """What one process has of a graph: rows ``[m, n]`` of the adjacency, and its nodes' arrays.

    ``nodes`` has them by name: ``x`` float32, ``y`` int64, masks bool, as far as the files do.
    """

    adjacency: csr_array
    nodes: dict[str, np.ndarray]


def parts_in(folder: str | Path) -> tuple[list[Path], int]:
    """The files of a graph, and its number of nodes."""
    paths = sorted(Path(folder).glob("part-*.npz"))
    if not paths:
        raise GraphError(f"{folder}: no files part-….npz here.")
    return paths, int(_arrays(paths[0], _SIZES)["num_nodes"])


def read_rows(folder: str | Path, parts: Parts) -> GraphRows:
    """This process's rows; all processes read some of the edges and send them where they belong.

    Edges are symmetrised as everywhere: without weights they are 0 or 1, with them repeats are
    summed and the larger of both directions counts.
    """
    paths, count = parts_in(folder)
    bounds = np.asarray(parts.bounds)
    if bounds[-1] != count:
        raise GraphError(f"{folder}: has {count:,} nodes, and the processes share {bounds[-1]:,}.")
    first, last = parts.rows.start or 0, count if parts.rows.stop is None else parts.rows.stop
    size = len(bounds) - 1
    rank = int(np.searchsorted(bounds, first, side="right")) - 1
    found = []
    for start in range(0, len(paths), size):  # as many rounds for every process
        own = paths[start + rank : start + rank + 1]
        ends = _edges(own[0], count) if own else np.empty((0, 3))
        found.append(_sent(ends, bounds, parts) if size > 1 else _both_ways(ends))
    nodes = _joined(_node_parts(paths, first, last), first, last, str(folder))
    return GraphRows(_symmetric(np.concatenate(found), first, last, count), nodes)


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    with naming(path):
        return read_arrays(path, "part of a graph", _NEEDED, names)


def _edges(path: Path, count: int) -> np.ndarray:
    """Both ends and the weight of every edge of a file, ``[E, 3]``; numbers below 2⁵³ are exact."""
    arrays = _arrays(path, ("edge_index", "edge_weight"))
    ends = np.asarray(arrays["edge_index"]).reshape(2, -1)
    weight = np.asarray(arrays.get("edge_weight", np.nan), dtype=np.float64)
    if ends.size and not 0 <= ends.min() <= ends.max() < count:
        raise GraphError(f"{path}: edge_index has a node that is not in 0..{count - 1}.")
    if np.any(weight < 0) or np.any(np.isinf(weight)):
        raise GraphError(f"{path}: edge_weight must be finite and not negative.")
    return np.column_stack([*ends, np.broadcast_to(weight, ends.shape[1])])


def _both_ways(edges: np.ndarray) -> np.ndarray:
    """Edges ``[E, 3]`` at the rows of either end, ``[2 E, 4]``; the last is the direction."""
    orders = enumerate(([0, 1, 2], [1, 0, 2]))
    ways = [np.column_stack([edges[:, order], np.full(len(edges), way)]) for way, order in orders]
    return np.concatenate(ways)


def _sent(edges: np.ndarray, bounds: np.ndarray, parts: Parts) -> np.ndarray:
    """The edges of all processes that have an end here."""
    both = _both_ways(edges)
    owner = np.searchsorted(bounds, both[:, 0], side="right") - 1
    counts = np.bincount(owner, minlength=len(bounds) - 1)
    ones = [1] * len(counts)
    back = parts.swap(torch.as_tensor(counts), ones, ones)().tolist()
    ordered = torch.as_tensor(both[np.argsort(owner, kind="stable")])
    return parts.swap(ordered, counts.tolist(), back)().numpy()


def _symmetric(found: np.ndarray, first: int, last: int, count: int) -> csr_array:
    """Rows ``[m, n]`` of the adjacency from entries ``[E, 4]``: row, column, weight, direction."""
    plain, ways = bool(np.isnan(found[:, 2]).any()), []
    for way in (0, 1):
        row, column, weight, _ = found[found[:, 3] == way].T
        entries = np.ones(len(row)) if plain else weight
        place = (row.astype(np.int64) - first, column.astype(np.int64))
        ways.append(coo_array((entries, place), shape=(last - first, count)).tocsr())
    rows = csr_array(ways[0].maximum(ways[1]))
    if plain:
        rows.data[:] = 1.0
    rows.eliminate_zeros()
    return rows


def _node_parts(paths: list[Path], first: int, last: int) -> Iterator[dict[str, Any]]:
    """The arrays of every file that holds some of these nodes."""
    starts = [int(_arrays(path, _SIZES)["first"]) for path in paths]
    ends = [*starts[1:], last]
    for path, start, end in zip(paths, starts, ends, strict=True):
        if start < last and end > first:
            own = slice(max(first, start) - start, last - start)
            yield {name: rows[own] for name, rows in _arrays(path, _NODES).items()}


def _joined(
    parts: Iterator[dict[str, Any]], first: int, last: int, folder: str
) -> dict[str, np.ndarray]:
    found = list(parts)
    kinds = {"x": np.float32, "y": np.int64} | dict.fromkeys(MASKS, np.bool_)
    joined = {
        name: np.concatenate([np.asarray(own[name], dtype=kinds[name]) for own in found])
        for name in (found[0] if found else ())
        if all(name in own for own in found)
    }
    for name, array in joined.items():
        if len(array) != last - first:
            raise GraphError(
                f"{folder}: {name} has {len(array):,} rows for the nodes {first:,} to {last - 1:,}."
            )
    return joined
