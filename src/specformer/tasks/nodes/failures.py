r"""Where a node classifier is right and where it fails, for a report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from specformer.graphs import Graph

#: Bins of confidence, and of the share of neighbours of a node's class.
_CONFIDENCES, _SHARES = np.linspace(0.0, 1.0, 11), np.linspace(0.0, 1.0, 6)
#: Bins of degrees: 0, 1, 2, 3, 4 to 7, 8 to 15, ...
_DEGREES = np.array([0, 1, 2, 3, *2 ** np.arange(2, 32)], dtype=float)
#: Nodes in a drawing, and neighbours by which one of them reaches others.
_DRAWN, _REACHED = 320, 24
#: Worst-predicted nodes that are listed.
_WORST = 12


def local_homophily(graph: Graph) -> np.ndarray:
    """Of each node's labelled neighbours the share that has its class ``[n]``; NaN without any.

    Example:
        >>> triangle = sp.csr_array(1.0 - np.eye(3))
        >>> local_homophily(Graph(triangle, y=np.array([0, 0, 1]))).tolist()
        [0.5, 0.5, 0.0]
    """
    assert graph.y is not None
    rows, columns = graph.adjacency.nonzero()
    told = (graph.y[rows] >= 0) & (graph.y[columns] >= 0) & (rows != columns)
    rows, columns = rows[told], columns[told]
    known = np.bincount(rows, minlength=graph.num_nodes)
    same = np.bincount(rows[graph.y[rows] == graph.y[columns]], minlength=graph.num_nodes)
    shares: np.ndarray = np.divide(same, known, out=np.full(len(known), np.nan), where=known > 0)
    return shares


def failures(graph: Graph, chances: np.ndarray, tested: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy of all runs' test nodes by confidence, by degree and by like neighbours.

    Args:
        graph: with labels.
        chances: class probabilities ``[runs, n, classes]``.
        tested: the test nodes of each run ``[runs, n]``.

    Returns:
        Tables with a row per bin that holds any node: its lower and upper end, its nodes, and how
        many of them were right; of ``calibration`` also the sum of their confidences.
    """
    assert graph.y is not None
    run, node = np.nonzero(tested)
    right = chances.argmax(axis=-1)[run, node] == graph.y[node]
    confidence = chances.max(axis=-1)[run, node]
    degrees = np.diff(graph.adjacency.indptr)
    return {
        "calibration": _binned(confidence, right, _CONFIDENCES, confidence),
        "by_degree": _binned(degrees[node].astype(float), right, _DEGREES),
        "by_homophily": _binned(local_homophily(graph)[node], right, _SHARES),
    }


def _binned(
    values: np.ndarray, right: np.ndarray, edges: np.ndarray, *sums: np.ndarray
) -> np.ndarray:
    """Of every bin that is not empty its ends, its count, how many are right, and more sums."""
    known = np.isfinite(values)
    place = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, len(edges) - 2)
    counted = (np.bincount(place, of[known].astype(float), len(edges) - 1) for of in (right, *sums))
    count = np.bincount(place, minlength=len(edges) - 1)
    return np.column_stack([edges[:-1], edges[1:], count, *counted])[count > 0]


def worst_nodes(graph: Graph, chances: np.ndarray, tested: np.ndarray) -> list[dict[str, Any]]:
    """One run's wrongly predicted test nodes, the least probable label first.

    Args:
        graph: with labels.
        chances: class probabilities ``[n, classes]``.
        tested: the test nodes ``[n]``.
    """
    assert graph.y is not None
    names = graph.class_names or [str(number) for number in range(graph.num_classes)]
    nodes = np.flatnonzero(tested)
    nodes = nodes[chances[nodes].argmax(axis=1) != graph.y[nodes]]
    own = chances[nodes, graph.y[nodes]]
    return [
        {
            "node": int(node),
            "class": names[graph.y[node]],
            "predicted": names[int(chances[node].argmax())],
            "chance": float(chances[node, graph.y[node]]),
            "neighbours": _classes(graph.y[_neighbours(graph.adjacency, node)], names),
        }
        for node in nodes[np.argsort(own, kind="stable")][:_WORST]
    ]


def _classes(labels: np.ndarray, names: Sequence[str]) -> dict[str, int]:
    """How many there are of each class, the most frequent first."""
    found, counts = np.unique(labels[labels >= 0], return_counts=True)
    return {names[found[each]]: int(counts[each]) for each in np.argsort(-counts, kind="stable")}


def _neighbours(adjacency: sp.csr_array, node: int) -> np.ndarray:
    found = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
    others: np.ndarray = found[found != node]
    return others


def drawn_part(graph: Graph, starts: Iterable[int]) -> np.ndarray:
    """A few hundred nodes around these, nearest first: the whole graph if it is no larger.

    Of a node's very many neighbours a fixed random part is followed.
    """
    if graph.num_nodes <= _DRAWN:
        return np.arange(graph.num_nodes)
    draw = np.random.default_rng(0)
    found: dict[int, None] = {}
    for start in (*starts, *draw.permutation(graph.num_nodes).tolist()):
        waiting = deque([int(start)])
        while waiting and len(found) < _DRAWN:
            node = waiting.popleft()
            if node not in found:
                found[node] = None
                near = _neighbours(graph.adjacency, node)
                if len(near) > _REACHED:
                    near = draw.choice(near, _REACHED, replace=False)
                waiting.extend(near.tolist())
        if len(found) == _DRAWN:
            break
    return np.array(sorted(found))


def drawing(
    graph: Graph, nodes: np.ndarray, chances: np.ndarray, tested: np.ndarray
) -> dict[str, np.ndarray]:
    """A part of a graph as reports draw it: nodes, edges, labels, and what one run predicts."""
    assert graph.y is not None
    part = sp.coo_array(graph.adjacency[nodes][:, nodes])
    once = part.row < part.col
    return {
        "drawn/nodes": nodes,
        "drawn/edges": np.column_stack([part.row[once], part.col[once]]).astype(np.int32),
        "drawn/labels": graph.y[nodes],
        "drawn/tested": tested[nodes],
        "drawn/chances": chances[nodes].astype(np.float32),
    }
