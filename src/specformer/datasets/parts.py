r"""A graph in several files, of which each process reads its own part.

As npz: each file ``part-….npz`` of a folder holds some nodes, in order: ``first``, the number of
the first of them, ``num_nodes`` of the whole graph, and, if there are any, their rows of ``x``,
``y`` and the masks. Its ``edge_index``, optionally with ``edge_weight``, holds any of the graph's
edges. As Parquet: files ``nodes-….parquet`` have one row per node, in order, with columns ``y``,
masks, and features; files ``edges-….parquet`` have ``source``, ``target`` and perhaps ``weight``.
Nodes are numbered over the whole graph, from 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from scipy.sparse import coo_array, csr_array

from specformer.errors import GraphError
from specformer.files.npz_archive import naming, read_arrays
from specformer.graphs import Graph
from specformer.graphs.checks import check_mask
from specformer.graphs.formats.npz_file import one_number
from specformer.graphs.formats.table_file import parquet_file, parquet_rows
from specformer.graphs.graph import MASKS, directed_edges
from specformer.spectrum.cache import content_of
from specformer.spectrum.sparse import Parts

_ARCHIVES, _NODE_TABLES, _EDGE_TABLES = "part-*.npz", "nodes-*.parquet", "edges-*.parquet"
#: The number of bytes read, or entries sent, at a time.
_CHUNK = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class GraphPart(Graph):
    """A graph of which this process has some rows of ``adjacency`` ``[m, n]`` and of ``x``.

    Labels and masks are those of all nodes. ``edges`` counts the edges of all processes; ``device``
    is the device of messages between them.
    """

    parts: Parts = field(kw_only=True)
    edges: int = field(kw_only=True)
    device: torch.device = field(kw_only=True)

    def _checked_adjacency(self) -> csr_array:
        return self.adjacency  # not checked, because it is not square here

    @property
    def num_nodes(self) -> int:
        return int(self.adjacency.shape[1])

    @property
    def num_edges(self) -> int:
        return self.edges

    def of_all(self, rows: np.ndarray) -> np.ndarray:
        return _gathered_rows(rows, self.parts, self.device)

    @cached_property
    def content(self) -> str:
        """The hash :func:`specformer.spectrum.cache.content` of the whole adjacency.

        The other processes send their rows to the first one, piece by piece.
        """
        rows, rank, where = self.adjacency, _rank(self.parts), (self.parts, self.device)
        before = _gathered_numbers(rows.nnz, *where)[:rank].sum()
        starts = rows.indptr.astype(np.int64) + before
        arrays = starts[min(rank, 1) :], rows.indices.astype(np.int64), rows.data
        pieces = (piece for array in arrays for piece in gathered_pieces(array, *where))
        found = bytes.fromhex(content_of((self.num_nodes, self.num_nodes), pieces))
        told = torch.tensor(list(found if rank == 0 else bytes(len(found))))
        return bytes(self.parts.sum(told.to(self.device)).tolist()).hex()

    def __repr__(self) -> str:
        return f"GraphPart({self.name!r}, nodes={self.num_nodes}, here={self.adjacency.shape[0]})"


class _Archives:
    """Files ``part-….npz``: ``every`` file, those ``with_edges``, and the ``count`` of nodes."""

    def __init__(self, folder: Path) -> None:
        self.every = self.with_edges = sorted(folder.glob(_ARCHIVES))
        counts: list[int] = []
        self._starts: list[int] = []
        for path in self.every:
            found = _arrays(path, ("num_nodes", "first"))
            with naming(path):
                counts.append(one_number(found["num_nodes"], "num_nodes"))
                self._starts.append(one_number(found["first"], "first"))
        self.count = counts[0]
        if len(set(counts)) > 1:
            raise GraphError(
                f"{folder}: num_nodes, that of the whole graph, differs between files."
            )
        if self._starts != sorted({0, *self._starts}):
            raise GraphError(f"{folder}: `first` must be 0 in the first file and rise from there.")

    def edges(self, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
        """Ends ``[2, E]`` and weights ``[E]`` of the edges of a file."""
        arrays = _arrays(path, ("edge_index", "edge_weight"))
        return arrays["edge_index"], arrays.get("edge_weight")

    def nodes(self, first: int, last: int) -> Iterator[dict[str, np.ndarray]]:
        """The arrays of these nodes, file by file."""
        ends = [*self._starts[1:], self.count]
        for path, start, end in zip(self.every, self._starts, ends, strict=True):
            if start < last and end > first:
                own = slice(max(first, start) - start, last - start)
                found = _arrays(path, ("x", "y", *MASKS))
                if single := next((name for name, rows in found.items() if not rows.ndim), None):
                    raise GraphError(f"{path}: {single} must have a row for each node.")
                yield {name: rows[own] for name, rows in found.items()}


class _Tables:
    """The same for files ``nodes-….parquet`` and ``edges-….parquet``."""

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.glob(_NODE_TABLES))
        self.with_edges = sorted(folder.glob(_EDGE_TABLES))
        if not self.with_edges:
            raise GraphError(f"{folder}: has no files edges-….parquet.")
        self.every = [*self._paths, *self.with_edges]
        self._sizes = [parquet_file(path).metadata.num_rows for path in self._paths]
        self.count = sum(self._sizes)

    def edges(self, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
        table = parquet_rows(path)
        for name in ("source", "target"):
            if name not in table.column_names:
                raise GraphError(f"{path}: has no column {name!r} with the nodes of edges.")
        ends = np.stack([_numbers(path, table, name, -1) for name in ("source", "target")])
        weighted = "weight" in table.column_names
        return ends, _numbers(path, table, "weight") if weighted else None

    def nodes(self, first: int, last: int) -> Iterator[dict[str, np.ndarray]]:
        start = 0
        for path, size in zip(self._paths, self._sizes, strict=True):
            low, high = max(first - start, 0), min(last - start, size)
            if low < high:
                yield _rows_of_table(path, low, high)
            start += size


def _rows_of_table(path: Path, low: int, high: int) -> dict[str, np.ndarray]:
    """Rows ``low`` to ``high`` of a table of nodes; other groups of rows are not read."""
    file = parquet_file(path)
    groups = [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]
    ends = np.cumsum(groups)
    read = [each for each, end in enumerate(ends) if end > low and end - groups[each] < high]
    skipped = int(ends[read[0]] - groups[read[0]])
    table = parquet_rows(path, read).slice(low - skipped, high - low)
    names = [name for name in table.column_names if name not in ("y", *MASKS)]
    found = {
        name: _numbers(path, table, name, -1 if name == "y" else None)
        for name in table.column_names
    }
    nodes = {name: rows for name, rows in found.items() if name not in names}
    if names:
        nodes["feature_names"] = np.array(names)
        nodes["x"] = np.column_stack([found[name].astype(np.float32) for name in names])
    return nodes


def _numbers(path: Path, table: Any, name: str, missing: int | None = None) -> np.ndarray:
    """A column of numbers; missing ones are NaN, or ``missing`` in a column of whole numbers."""
    column = table.column(name)
    kind = str(column.type)
    if column.null_count and kind.startswith(("int", "uint")) and missing is not None:
        column = column.fill_null(missing)
    values: np.ndarray = column.to_numpy()
    if values.dtype.kind not in "iufb":
        raise GraphError(
            f"{path}: column {name!r} holds {kind}, not numbers; write words as columns of 0 and 1."
        )
    return values


def is_in_parts(source: str | Path) -> bool:
    """Whether a path is a folder with a graph in parts."""
    path = Path(source)
    return path.is_dir() and any(any(path.glob(each)) for each in (_ARCHIVES, _NODE_TABLES))


@dataclass(frozen=True)
class AllRows:
    """The rows of a graph that a single process has: all of them."""

    count: int

    @property
    def bounds(self) -> list[int]:
        return [0, self.count]

    @property
    def rows(self) -> slice:
        return slice(0, self.count)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def swap(self, rows: torch.Tensor, *_: object) -> Callable[[], torch.Tensor]:
        return lambda: rows


def read_parts(
    folder: str | Path,
    share: Callable[[int], Parts] = AllRows,
    device: torch.device | str = "cpu",
) -> Graph:
    """The graph in a folder of parts; each of several processes gets its rows of it.

    Every process reads some of the edges and sends them to the processes of their nodes. Edges are
    symmetrised as everywhere: without weights entries are 0 or 1; with weights repeated edges are
    summed, and the larger of both directions counts.

    Args:
        folder: the folder of the files.
        share: divides a number of nodes among the processes.
        device: the device of messages between processes.
    """
    folder, device = Path(folder), torch.device(device)
    if not is_in_parts(folder):
        raise GraphError(f"{folder}: has no files part-….npz or nodes-….parquet.")
    files = _Archives(folder) if any(folder.glob(_ARCHIVES)) else _Tables(folder)
    count, parts = files.count, share(files.count)
    bounds, size = np.asarray(parts.bounds), len(parts.bounds) - 1
    rank = _rank(parts)
    first, last = int(bounds[rank]), int(bounds[rank + 1])
    mark = _hash_of_files(files.every, rank, parts, device)
    own, found = _own_files(files.with_edges, rank, size), []
    for number in range(-(-len(files.with_edges) // size)):  # the same number in every process
        both = _edges(files, own[number]) if number < len(own) else np.empty((0, 4))
        found.append(_exchanged(both, bounds, parts, device))
    edges = np.concatenate(found)
    unweighted = np.isnan(edges[:, 2])
    kinds = torch.tensor([bool(unweighted.any()), not unweighted.all()], dtype=torch.int64)
    if parts.sum(kinds.to(device)).count_nonzero() == 2:
        raise GraphError(f"{folder}: only some files have weights of edges; add them to all files.")
    rows = _symmetric(edges, first, last, count)
    nodes = _agreed_nodes(files, folder, parts, device)
    names = nodes.pop("feature_names", None)
    for name in ("y", *MASKS):  # in the same order in every process
        if name in nodes:
            nodes[name] = _gathered_rows(nodes[name], parts, device)
    known: dict[str, Any] = {**nodes, "name": folder.name, "mark": mark, "feature_names": names}
    if size == 1:
        return Graph(rows, **known)
    ways = torch.tensor([rows.nnz - np.count_nonzero(rows.diagonal(first))])
    total = int(parts.sum(ways.to(device))) // 2
    return GraphPart(rows, **known, parts=parts, edges=total, device=device)


def _rank(parts: Parts) -> int:
    return list(parts.bounds).index(parts.rows.start or 0)


def _own_files(paths: Sequence[Path], rank: int, size: int) -> Sequence[Path]:
    """The files that a process reads for all; those of its own nodes, if files have one size."""
    return paths[len(paths) * rank // size : len(paths) * (rank + 1) // size]


def _hash_of_files(paths: Sequence[Path], rank: int, parts: Parts, device: torch.device) -> str:
    """A hash of all files; each file is read by one process."""
    digests = torch.zeros(len(paths), dtype=torch.int64)
    for path in _own_files(paths, rank, len(parts.bounds) - 1):
        digest = xxhash.xxh3_64()
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
        digests[paths.index(path)] = digest.intdigest() - 2**63
    found = parts.sum(digests.to(device)).tolist()
    named = "".join(f"{path.name} {own};" for path, own in zip(paths, found, strict=True))
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def _gathered_numbers(number: int, parts: Parts, device: torch.device) -> np.ndarray:
    """The number of every process, from that of this one."""
    found = torch.zeros(len(parts.bounds) - 1, dtype=torch.int64)
    found[_rank(parts)] = number
    return parts.sum(found.to(device)).cpu().numpy()


def gathered_pieces(array: np.ndarray, parts: Parts, device: torch.device) -> Iterator[np.ndarray]:
    """Send all processes' arrays to the first one, which gets them in pieces, in order."""
    rank, size = _rank(parts), len(parts.bounds) - 1
    for sender, length in enumerate(_gathered_numbers(len(array), parts, device).tolist()):
        for start in range(0, length, _CHUNK):
            own = array[start : start + _CHUNK] if sender == rank else array[:0]
            counts, back = [0] * size, [0] * size
            counts[0], back[sender] = len(own), min(_CHUNK, length - start) * (rank == 0)
            found = parts.swap(torch.as_tensor(own).to(device), counts, back)()
            if rank == 0:
                yield found.cpu().numpy()


def _gathered_rows(rows: np.ndarray, parts: Parts, device: torch.device) -> np.ndarray:
    """The rows of all processes, from those of this one."""
    if len(parts.bounds) == 2:
        return rows
    sent = rows.astype(np.uint8) if rows.dtype == np.bool_ else rows
    whole = torch.zeros(parts.bounds[-1], *rows.shape[1:], dtype=torch.as_tensor(sent[:0]).dtype)
    whole[parts.rows] = torch.as_tensor(sent)
    return parts.sum(whole.to(device)).cpu().numpy().astype(rows.dtype)


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    with naming(path):
        required = ("edge_index", "num_nodes", "first")
        return read_arrays(path, "part of a graph", required, names, others=True)


def _edges(files: _Archives | _Tables, path: Path) -> np.ndarray:
    """The edges of a file in both directions, ``[2 E, 4]``: both ends, weight, direction.

    The weight is NaN if the file has no weights. Numbers below 2⁵³ are exact.
    """
    ends, given = files.edges(path)
    with naming(path):
        edges = directed_edges(ends, files.count, given)
    one, other = edges.coords
    weight = np.full(len(one), np.nan) if given is None else edges.data
    forth = np.column_stack([one, other, weight, np.zeros(len(one))])
    back = np.column_stack([other, one, weight, np.ones(len(one))])
    return np.concatenate([forth, back])


def _exchanged(
    both: np.ndarray, bounds: np.ndarray, parts: Parts, device: torch.device
) -> np.ndarray:
    """The edges of all processes whose first node is a row of this one."""
    owner = np.searchsorted(bounds, both[:, 0], side="right") - 1
    counts = np.bincount(owner, minlength=len(bounds) - 1)
    ones = [1] * len(counts)
    back = parts.swap(torch.as_tensor(counts).to(device), ones, ones)().tolist()
    ordered = torch.as_tensor(both[np.argsort(owner, kind="stable")]).to(device)
    return parts.swap(ordered, counts.tolist(), back)().cpu().numpy()


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
    rows.sort_indices()
    return rows


def _agreed_nodes(
    files: _Archives | _Tables, folder: Path, parts: Parts, device: torch.device
) -> dict[str, Any]:
    """The arrays of this process's nodes; refuses files that differ, in all processes alike."""
    rank, bounds = _rank(parts), list(parts.bounds)
    nodes: dict[str, Any] = {}
    told: dict[str, Any] = {}
    try:
        nodes = _joined_nodes(files, bounds[rank], bounds[rank + 1], folder)
    except GraphError as error:
        told = {"refused": str(error)}
    names = nodes.get("feature_names", ())
    arrays = {name: rows for name, rows in nodes.items() if name != "feature_names"}
    told |= {name: (str(rows.dtype), rows.shape[1:]) for name, rows in arrays.items()}
    others = [each for each in _told_by_all([told, names], parts, device) if each[0]]
    if refused := [each["refused"] for each, _ in others if "refused" in each]:
        raise GraphError(refused[0])
    if not others:
        return nodes
    (first, columns), *_ = others
    for each, own in others:
        if lone := sorted(first.keys() ^ each.keys()):
            raise GraphError(f"{folder}: only some files have {lone[0]}; add it to all files.")
        if odd := [name for name in first if each[name][1] != first[name][1]]:
            raise GraphError(f"{folder}: {odd[0]} has different numbers of columns in its files.")
        if own != columns:
            raise GraphError(f"{folder}: files of nodes have different columns; use the same.")
    for name, (kind, shape) in first.items():
        kinds = {each[name][0] for each, _ in others}  # labels may be whole in some files only
        rows = arrays.get(name, np.empty((0, *shape)))
        nodes[name] = rows.astype(kind if len(kinds) == 1 else np.float32, copy=False)
    return {**nodes, "feature_names": tuple(columns)} if columns else nodes


def _told_by_all(own: Any, parts: Parts, device: torch.device) -> list[Any]:
    """What each process tells, as JSON."""
    text = json.dumps(own).encode()
    lengths = _gathered_numbers(len(text), parts, device)
    table = torch.zeros(len(lengths), int(lengths.max()), dtype=torch.int64)
    table[_rank(parts), : len(text)] = torch.tensor(list(text))
    found = parts.sum(table.to(device)).cpu()
    return [
        json.loads(bytes(row[:length].tolist()))
        for row, length in zip(found, lengths.tolist(), strict=True)
    ]


def _joined_nodes(
    files: _Archives | _Tables, first: int, last: int, folder: Path
) -> dict[str, Any]:
    """The arrays of these nodes, joined over all files."""
    found = list(files.nodes(first, last))
    joined: dict[str, Any] = {}
    for name in found[0] if found else ():
        if any(name not in own for own in found):
            raise GraphError(f"{folder}: only some files have {name}; add it to all files.")
        if len({own[name].shape[1:] for own in found}) > 1:
            raise GraphError(f"{folder}: {name} has different numbers of columns in its files.")
        if name == "feature_names":
            joined[name] = tuple(found[0][name].tolist())
            if any(tuple(own[name].tolist()) != joined[name] for own in found):
                raise GraphError(f"{folder}: files of nodes have different columns; use the same.")
            continue
        rows = np.concatenate([own[name] for own in found])
        if len(rows) != last - first:
            raise GraphError(
                f"{folder}: {name} has {len(rows):,} rows for the nodes {first:,} to {last - 1:,}."
            )
        if name in MASKS:
            with naming(folder):
                rows = check_mask(rows, name, len(rows))
        labels = np.float32 if rows.dtype.kind == "f" else np.int64
        kinds = {"x": np.float32, "y": labels}  # types that messages can have
        joined[name] = rows.astype(kinds.get(name, np.bool_))
    return joined
