"""What is learned about nodes: one class each, several labels, or numbers."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError
from specformer.graphs import Graph
from specformer.graphs.columns import quoted
from specformer.graphs.formats.feature_column import is_date
from specformer.graphs.formats.read import holds_only_edges
from specformer.graphs.formats.table import is_number

logger = logging.getLogger(__name__)

TargetKind = Literal["classification", "regression"]

#: How many columns an error lists.
_NAMED = 8
#: Up to this many different labels are classes without a further look.
_MANY_CLASSES = 20


def with_targets(graph: Graph, task: TargetKind | None = None, source: str | None = None) -> Graph:
    """Return the graph with labels in the form in which they are learned; refuse useless ones.

    Classes are int64 ``[n]``, several labels or numbers are float32 ``[n, targets]``. Without a
    ``task`` the labels decide: one whole number or word per node is a class; numbers with
    fractions, and whole ones of which most differ, are numbers; several columns of 0 and 1 are
    labels, or classes if every node of a file has exactly one. ``source`` is the file, or how else
    to call the graph in errors; by default its name.

    Example:
        >>> from specformer.datasets import csbm
        >>> graph = replace(csbm(0.5, num_nodes=100), y=np.linspace(0.0, 1.0, 100))
        >>> with_targets(graph).num_targets, with_targets(csbm(0.5, num_nodes=100)).num_classes
        (1, 2)
    """
    is_file, source = source is not None, source or graph.name
    if not graph.is_labelled.any():
        raise GraphError(
            f"{source}: the graph has no labels to learn from; {_how_to_label(graph, source)}."
        )
    assert graph.y is not None
    if is_file and task != "regression":
        graph = _one_class_each(graph, source)
    chosen = task or _task_of(graph, source)
    return (_as_numbers if chosen == "regression" else _as_classes)(graph, source)


def _one_class_each(graph: Graph, source: str) -> Graph:
    """Turn several labels into classes if every node has exactly one of them."""
    assert graph.y is not None
    known = graph.y[graph.is_labelled] if graph.num_targets > 1 else np.zeros((0, 1))
    if not len(known) or not are_labels(known) or not (known.sum(axis=1) == 1.0).all():
        return graph
    logger.info(
        "%s: each node has exactly one of %d labels; they are learned as classes",
        source, graph.num_targets,
    )  # fmt: skip
    return replace(graph, y=np.where(graph.is_labelled, graph.y.argmax(axis=1), -1))


def are_labels(y: NDArray[np.generic]) -> bool:
    """Whether all known targets are 0 or 1."""
    values = np.asarray(y, dtype=np.float64)
    return bool(np.isin(values[~np.isnan(values)], (0.0, 1.0)).all())


def _task_of(graph: Graph, source: str) -> TargetKind:
    assert graph.y is not None
    if graph.num_targets > 1:
        return "classification" if are_labels(graph.y) else "regression"
    if graph.num_targets:
        known = np.unique(graph.y[graph.is_labelled])
        few = len(known) <= _MANY_CLASSES and np.array_equal(known, np.arange(len(known)))
        return "classification" if few else "regression"
    names, counted = _names(graph), int(graph.is_labelled.sum())
    are_numbers = all(map(_is_finite, names))
    whole = not are_numbers or all(float(name).is_integer() for name in names)
    if all(map(is_date, names)):
        raise GraphError(
            f"{source}: the labels are dates, such as {names[0]}; {_how_to_label(graph, source)}, "
            "or learn every date as a class with --task classification."
        )
    are_few, repeat = len(names) <= _MANY_CLASSES, 2 * len(names) <= counted
    if (are_few and repeat) or (whole and (are_few or repeat)):
        return "classification"
    if are_numbers:
        return "regression"
    raise GraphError(
        f"{source}: {len(names)} different labels on {counted} nodes cannot be learned as classes; "
        f"{_how_to_label(graph, source)}."
    )


def _how_to_label(graph: Graph, source: str) -> str:
    """What to do if a graph has no classes: the end of an error message."""
    if graph.feature_names:
        listed = quoted(graph.feature_names[:_NAMED])
        more = "" if len(graph.feature_names) <= _NAMED else ", …"
        return f"name the column that holds them with --label: {listed}{more}"
    if holds_only_edges(source):
        return (
            "put this list of edges into a folder, as edges.csv beside a nodes.csv with labels, or "
            "learn links with --task links"
        )
    return (
        "labels are read from a column label of nodes.csv, y of an npz file, or an attribute of "
        "nodes in GraphML"
    )


def _as_numbers(graph: Graph, source: str) -> Graph:
    """Turn classes into numbers, which their names must be."""
    assert graph.y is not None
    if not graph.num_targets:
        names, known = _names(graph), graph.is_labelled
        for name in names:
            if not _is_finite(name):
                raise GraphError(f"{source}: the label {name!r} is not a number; leave out --task.")
        _, place = np.unique(graph.y[known], return_inverse=True)
        y = np.full(graph.num_nodes, np.nan)
        y[known] = np.array(list(map(float, names)))[place]
        told = None if graph.label_name is None else (graph.label_name,)
        graph = replace(graph, y=y, class_names=told)
    targets = np.asarray(graph.y)
    if not any(len(np.unique(column[~np.isnan(column)])) > 1 for column in targets.T):
        raise GraphError(f"{source}: every known target is the same; there is nothing to learn.")
    return graph


def _as_classes(graph: Graph, source: str) -> Graph:
    assert graph.y is not None
    if graph.num_targets > 1:
        if not are_labels(graph.y):
            raise GraphError(
                f"{source}: several labels per node must be 0 or 1, but some are not; use --task "
                "regression for numbers."
            )
        return graph
    if graph.num_targets:
        known, column = graph.is_labelled, graph.y[:, 0]
        values = column[known]
        strange = values[(values < 0) | (values != np.floor(values))]
        if strange.size:
            raise GraphError(
                f"{source}: classes are 0, 1, 2, …, but a label is {strange[0]:g}; use --task "
                "regression for numbers."
            )
        y = np.where(known, column, -1.0).astype(np.int64)
        graph = replace(graph, y=y, class_names=None)
    names = _names(graph)
    if len(names) == 1:
        raise GraphError(f"{source}: every label is {names[0]}; two classes are needed to learn.")
    return graph


def _names(graph: Graph) -> list[str]:
    """The names of the classes that occur."""
    assert graph.y is not None
    labels = np.unique(graph.y[graph.is_labelled]).tolist()
    return [graph.class_names[label] if graph.class_names else str(label) for label in labels]


def _is_finite(name: str) -> bool:
    return is_number(name) and math.isfinite(float(name))
