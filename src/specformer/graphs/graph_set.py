"""Many small graphs as one set of flat arrays, in OGB's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from specformer.errors import GraphError
from specformer.graphs.checks import (
    as_array,
    as_columns,
    check_features,
    check_index,
    check_names,
    check_room,
    finite_targets,
    refuse,
)
from specformer.graphs.graph import fingerprint

SPLITS = ("train_idx", "valid_idx", "test_idx")


def starts(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the start of each piece, given their lengths, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def ragged(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return first[0], first[0]+1, …, then first[1], first[1]+1, …: ``counts[i]`` numbers each."""
    begin = starts(counts)
    return np.repeat(first - begin[:-1], counts) + np.arange(begin[-1])


def runs_within(
    weights: NDArray[Any], limit: int, longest: int | None = None
) -> Iterator[tuple[int, int]]:
    """Cut a row into runs whose weights sum to at most ``limit``; a heavier entry is its own run.

    ``longest`` is the largest number of entries in a run.
    """
    end = np.cumsum(weights)
    first = 0
    while first < len(weights):
        before = end[first - 1] if first else 0
        last = max(int(np.searchsorted(end, before + limit, side="right")), first + 1)
        last = last if longest is None else min(last, first + longest)
        yield first, last
        first = last


@dataclass(frozen=True, eq=False, repr=False)
class GraphSet:
    """G undirected graphs, whose nodes and bonds have categories and perhaps numbers.

    All fields are checked when it is made. A bond is stored once: if it is given in both
    directions, its features must agree. Graphs of one node, without bonds or in several pieces are
    allowed.

    Attributes:
        num_nodes: nodes of each graph [G], at least 1.
        num_edges: bonds of each graph [G].
        edge_index: ends of every bond [2, ΣE], numbered within the bond's own graph.
        node_feat: categories of the nodes [ΣN, columns], 0, 1, …; one column of zeros if None.
        edge_feat: categories of the bonds [ΣE, columns]; one column of zeros if None.
        y: targets [G, tasks], float32; NaN is missing.
        train_idx: numbers of the graphs to learn from.
        valid_idx: numbers of the graphs to choose a model by.
        test_idx: numbers of the graphs to report on.
        ids: the graphs' names in their source [G].
        smiles: the graphs as SMILES [G], where they are molecules.
        task_names: the name of each column of ``y``.
        class_names: the name of class 0, 1, … if the only target is a class.
        x: numbers of the nodes [ΣN, features], float32, if they have any.
        edge_x: numbers of the bonds [ΣE, features], float32, if they have any.
        name: what to call the set in reports.

    Example:
        >>> GraphSet(num_nodes=[2, 1], num_edges=[2, 0], edge_index=[[0, 1], [1, 0]], name="pair")
        GraphSet('pair', graphs=2, nodes=3, edges=1)
    """

    num_nodes: NDArray[np.int64]
    num_edges: NDArray[np.int64]
    edge_index: NDArray[np.int32]
    node_feat: NDArray[Any] = None  # type: ignore[assignment]  # filled in __post_init__
    edge_feat: NDArray[Any] = None  # type: ignore[assignment]
    y: NDArray[np.float32] | None = None
    train_idx: NDArray[np.int64] | None = None
    valid_idx: NDArray[np.int64] | None = None
    test_idx: NDArray[np.int64] | None = None
    ids: tuple[str, ...] | None = None
    smiles: tuple[str, ...] | None = None
    task_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    x: NDArray[np.float32] | None = None
    edge_x: NDArray[np.float32] | None = None
    name: str = "graphs"

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        put("num_nodes", _counts(self.num_nodes, "num_nodes", None, least=1))
        put("num_edges", _counts(self.num_edges, "num_edges", len(self), least=0))
        # Summed as floats: 64-bit integers would overflow if a file claims enough.
        counts = {"nodes": self.num_nodes, "edges": self.num_edges}
        check_room(**{what: int(count.sum(dtype=np.float64)) for what, count in counts.items()})
        put("edge_index", _edges(self.edge_index, self.num_nodes, self.num_edges))
        total_nodes, total_edges = int(self.num_nodes.sum()), int(self.num_edges.sum())
        put("node_feat", _categories(self.node_feat, "node_feat", total_nodes))
        put("edge_feat", _categories(self.edge_feat, "edge_feat", total_edges))
        for field, rows in (("x", total_nodes), ("edge_x", total_edges)):
            if getattr(self, field) is not None:
                put(field, _numbers(getattr(self, field), field, rows))
        for field, value in _bonds_once(self).items():
            put(field, value)
        if self.y is not None:
            y = as_columns(as_array(self.y, "y"), "y", len(self), "tasks")
            put("y", finite_targets(y))
        for field in ("ids", "smiles"):
            if (texts := getattr(self, field)) is None:
                continue
            if len(texts) != len(self):
                raise GraphError(f"{field} must have {len(self)} entries, not {len(texts)}")
            put(field, tuple(map(str, texts)))
        if self.task_names is not None:
            put("task_names", check_names(self.task_names, "task_names", self.num_tasks))
        if self.class_names is not None:
            put("class_names", _class_names(self.class_names, self.y))
        for field, value in _splits(self).items():
            put(field, value)

    def __len__(self) -> int:
        return len(self.num_nodes)

    @property
    def num_tasks(self) -> int:
        """Number of columns of ``y``; 0 without targets."""
        return 0 if self.y is None else int(self.y.shape[1])

    @property
    def num_features(self) -> int:
        """Number of columns of ``x``; 0 without it."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def num_edge_features(self) -> int:
        """Number of columns of ``edge_x``; 0 without it."""
        return 0 if self.edge_x is None else int(self.edge_x.shape[1])

    @cached_property
    def node_start(self) -> NDArray[np.int64]:
        """Row of ``node_feat`` each graph starts at [G + 1]; the last entry is ΣN."""
        return starts(self.num_nodes)

    @cached_property
    def edge_start(self) -> NDArray[np.int64]:
        """Column of ``edge_index`` each graph starts at [G + 1]; the last entry is ΣE."""
        return starts(self.num_edges)

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of graphs, features and targets."""
        features = ("node_feat", "edge_feat", "x", "edge_x", "y")
        fields = ("num_nodes", "num_edges", "edge_index", *features)
        return fingerprint(**{field: getattr(self, field) for field in fields})

    @property
    def node_cardinalities(self) -> tuple[int, ...]:
        """One more than the largest value of each column of ``node_feat``."""
        return tuple((self.node_feat.max(axis=0).astype(np.int64) + 1).tolist())

    @property
    def edge_cardinalities(self) -> tuple[int, ...]:
        """One more than the largest value of each column of ``edge_feat``; at least 1."""
        return tuple((self.edge_feat.max(axis=0, initial=0).astype(np.int64) + 1).tolist())

    def joined(self, numbers: NDArray[np.int64]) -> csr_array[np.float64]:
        """Return the adjacency matrix of these graphs as one graph of many components.

        Node i of the g-th of them is row ``starts(num_nodes[numbers])[g] + i``.
        """
        sizes, bonds = self.num_nodes[numbers], self.num_edges[numbers]
        ends = self.edge_index[:, ragged(self.edge_start[numbers], bonds)]
        first = starts(sizes)
        one, other = ends + np.repeat(first[:-1], bonds)
        twice = one != other  # a loop gives one entry, any other bond two
        rows, columns = np.append(one, other[twice]), np.append(other, one[twice])
        shape = (int(first[-1]), int(first[-1]))
        return csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)

    def outside(
        self, node_cardinalities: Sequence[int], edge_cardinalities: Sequence[int]
    ) -> NDArray[np.int64]:
        """Return the numbers of the graphs with a node or bond beyond these cardinalities."""
        found = []
        for name, limits, feature, counts in (
            ("node_feat", node_cardinalities, self.node_feat, self.num_nodes),
            ("edge_feat", edge_cardinalities, self.edge_feat, self.num_edges),
        ):
            if feature.shape[1] != len(limits):
                raise GraphError(
                    f"{name} has {feature.shape[1]} columns where {len(limits)} are expected"
                )
            beyond = (feature >= np.asarray(limits)).any(axis=1)
            found.append(np.repeat(np.arange(len(self)), counts)[beyond])
        return np.unique(np.concatenate(found))

    def subset(self, indices: Any) -> GraphSet:
        """Return the graphs with these numbers, in this order, without a split."""
        chosen = check_index(indices, "indices", len(self))
        rows = ragged(self.node_start[chosen], self.num_nodes[chosen])
        bonds = ragged(self.edge_start[chosen], self.num_edges[chosen])
        arrays = dict.fromkeys(("num_nodes", "num_edges", "y"), chosen)
        arrays |= {"node_feat": rows, "x": rows, "edge_feat": bonds, "edge_x": bonds}
        taken: dict[str, Any] = {
            name: held[places]
            for name, places in arrays.items()
            if (held := getattr(self, name)) is not None
        }
        for name in ("ids", "smiles"):
            if (texts := getattr(self, name)) is not None:
                taken[name] = tuple(texts[i] for i in chosen)
        taken |= dict.fromkeys(SPLITS)
        return replace(self, edge_index=self.edge_index[:, bonds], **taken)

    def __repr__(self) -> str:
        shown = {"graphs": len(self), "nodes": len(self.node_feat), "edges": len(self.edge_feat)}
        known = {"features": self.num_features, "edge_features": self.num_edge_features}
        known |= {"tasks": self.num_tasks}
        shown |= {key: value for key, value in known.items() if value}
        for split in SPLITS:
            if (index := getattr(self, split)) is not None:
                shown[split.removesuffix("_idx")] = len(index)
        return f"GraphSet({self.name!r}, {', '.join(f'{k}={v}' for k, v in shown.items())})"


def _counts(value: Any, name: str, length: int | None, least: int) -> NDArray[np.int64]:
    counts = as_array(value, name, of="integers")
    if counts.ndim != 1 or length not in (None, len(counts)):
        expected = "graphs" if length is None else str(length)
        raise GraphError(f"{name} must have shape [{expected}], not {list(counts.shape)}")
    if len(counts) == 0:
        raise GraphError("the set has no graphs")
    refuse(counts < least, counts, name, f"but must be at least {least}")
    return counts.astype(np.int64)


def _edges(
    value: Any, num_nodes: NDArray[np.int64], num_edges: NDArray[np.int64]
) -> NDArray[np.int32]:
    edges = as_array(value, "edge_index", of="integers")
    total = int(num_edges.sum())
    if edges.shape != (2, total) and not (edges.size == total == 0):
        raise GraphError(f"edge_index must have shape [2, {total}], not {list(edges.shape)}")
    edges = edges.reshape(2, total)
    bad = (edges < 0) | (edges >= np.repeat(num_nodes, num_edges))
    if bad.any():
        end, bond = np.unravel_index(bad.argmax(), bad.shape)
        graph = int(np.searchsorted(starts(num_edges), bond, side="right")) - 1
        raise GraphError(
            f"edge_index[{end}, {bond}] is {edges[end, bond]}, "
            f"but graph {graph} has nodes 0..{num_nodes[graph] - 1}"
        )
    return edges.astype(np.int32)


def _categories(value: Any, name: str, rows: int) -> NDArray[Any]:
    """Return whole numbers [rows, columns], not negative, in the smallest type that holds them."""
    if value is None:
        return np.zeros((rows, 1), dtype=np.uint8)
    array = as_columns(as_array(value, name, of="integers"), name, rows)
    refuse(array < 0, array, name, "but categories are 0, 1, 2, …")
    largest = int(array.max(initial=0))
    if largest > np.iinfo(np.int32).max:
        raise GraphError(f"{name} has a category {largest}, which does not fit 32 bits")
    # Only types that PyTorch can compute with: it has no arithmetic for uint16.
    fitting = (kind for kind in (np.uint8, np.int16, np.int32) if largest <= np.iinfo(kind).max)
    return np.ascontiguousarray(array, dtype=next(fitting))


def _numbers(value: Any, name: str, rows: int) -> NDArray[np.float32]:
    dense = check_features(value, rows, name=name)
    if not isinstance(dense, np.ndarray):
        raise GraphError(f"{name} of many graphs must be dense, not sparse")
    if dense.shape[1] == 0:
        raise GraphError(f"{name} has no columns")
    return dense


def _bonds_once(graphs: GraphSet) -> dict[str, NDArray[Any]]:
    """Return the fields to change so that every bond occurs once; empty if that is so already."""
    graph = np.repeat(np.arange(len(graphs)), graphs.num_edges)
    low, high = graphs.edge_index.min(axis=0), graphs.edge_index.max(axis=0)
    size = graphs.num_nodes[graph]
    pair = starts(graphs.num_nodes**2)[graph] + low * size + high
    if not (np.diff(np.sort(pair)) == 0).any():
        return {}
    _, first, place = np.unique(pair, return_index=True, return_inverse=True)
    features = {"edge_feat": graphs.edge_feat}
    if graphs.edge_x is not None:
        features["edge_x"] = graphs.edge_x
    differs = np.zeros(len(pair), dtype=bool)
    for feature in features.values():
        differs |= (feature != feature[first[place]]).any(axis=1)
    if differs.any():
        bond = int(differs.argmax())
        raise GraphError(
            f"graph {graph[bond]}: the bond between nodes {low[bond]} and {high[bond]} is given "
            "more than once, with different features; make them the same in both directions"
        )
    keep = np.sort(first)
    return {
        "edge_index": graphs.edge_index[:, keep],
        **{name: feature[keep] for name, feature in features.items()},
        "num_edges": np.bincount(graph[keep], minlength=len(graphs)),
    }


def _class_names(value: Sequence[str], y: NDArray[np.float32] | None) -> tuple[str, ...]:
    names = check_names(value, "class_names")
    if y is None or y.shape[1] != 1:
        raise GraphError("class_names need exactly one target; y has none or several")
    rule = f"but the classes are 0..{len(names) - 1}, those of class_names"
    refuse(~np.isnan(y) & ~np.isin(y, np.arange(len(names))), y, "y", rule)
    return names


def _splits(graphs: GraphSet) -> dict[str, NDArray[np.int64]]:
    count = len(graphs)
    checked: dict[str, NDArray[np.int64]] = {}
    taken = np.zeros(count, dtype=bool)
    for name in SPLITS:
        if (value := getattr(graphs, name)) is None:
            continue
        index = check_index(value, name, count)
        if index.ndim != 1:
            raise GraphError(f"{name} must have shape [graphs], not {list(index.shape)}")
        refuse(taken[index], index, name, "which is in another part of the split too")
        times = np.bincount(index, minlength=count)
        if times.max() > 1:
            raise GraphError(f"{name} names graph {times.argmax()} more than once")
        taken[index] = True
        checked[name] = index
    return checked
