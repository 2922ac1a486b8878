"""A graph from a table of its edges and, if there is one, a table of its nodes."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import numpy as np

from specformer.errors import GraphError
from specformer.graphs.columns import (
    FOLDS,
    IDS,
    LABEL,
    NAMES,
    OTHER_LABELS,
    SPLIT,
    UNNAMED,
    WEIGHTS,
    Columns,
    is_id,
    plain_name,
    quoted,
)
from specformer.graphs.formats.feature_column import (
    feature_column,
    warn_of_stand_ins,
    without_units,
)
from specformer.graphs.formats.table import Table, in_order, is_missing, plain_numbers
from specformer.graphs.graph import MASKS, Graph, directed_edges, symmetrised

logger = logging.getLogger(__name__)

#: Long ids as spreadsheets write them: 1.23E+11.
_ROUNDED = re.compile(r"\d[.,]\d+E\+\d\d")
#: With so few nodes, a column may equal the labels by chance.
_FEW = 20
#: More labels than this may be numbers rather than classes.
_MANY = 20
#: Separators of several labels in a cell.
_PARTED = re.compile(r" *[|;,/] *")
#: Labels that may mean that there is no label.
_NOT_KNOWN = {"unknown", "missing", "unlabeled", "unlabelled", "undefined", "not available"}


def graph_of_tables(
    edges: Table, nodes: Table | None, columns: Columns, name: str, *, labels: bool = True
) -> Graph:
    """Join a table of edges with one of nodes; without it the nodes are those that edges name.

    ``labels``: whether labels and a split that ``columns`` names must exist.
    """
    fields = {} if nodes is None else _of_nodes(nodes, columns, labels)
    source, target = _ends(edges, columns, fields.get("node_ids", ()))
    if nodes is None:
        of_nodes = set() if labels else {"label", "split", "features", "id"}
        asked = columns.said.keys() - {"source", "target", "weight"} - of_nodes
        if asked:
            raise GraphError(
                f"{edges.path}: there are only edges, and no table of nodes to read "
                f"{quoted(sorted(asked))} from"
            )
        named = {*edges.columns[source], *edges.columns[target]} - {""}
        fields = {"node_ids": tuple(in_order(named))}
    index = {node: i for i, node in enumerate(fields["node_ids"])}
    if not index:
        raise GraphError(f"{(nodes or edges).path}: the graph has no nodes")
    if rounded := next(filter(_ROUNDED.fullmatch, index), None):
        fix = "format the ids as text before you export them"
        told = f"the id {rounded!r} is a number that a spreadsheet has rounded; {fix}"
        raise GraphError(f"{(nodes or edges).path}: {told}")
    among = "the file" if nodes is None else nodes.path.name
    ends = [edges.positions(end, index, among) for end in (source, target)]
    column = _weight(edges, columns, (source, target))
    weights = None if column is None else without_units(edges, [column]).weights(column)
    if weights is not None and (zeros := np.count_nonzero(weights == 0)):
        logger.info("%s: %d edges of weight 0 are left out", edges.path, zeros)
    matrix = directed_edges(np.stack(ends), len(index), weights)
    return Graph(symmetrised(matrix), **fields, name=name)


def _ends(edges: Table, columns: Columns, known: Sequence[str]) -> tuple[str, str]:
    """Return the columns of an edge's ends: by name, else the only two that hold nodes."""
    if columns.source is not None and columns.target is not None:
        return edges.said(columns.source), edges.said(columns.target)
    if columns.source is not None or columns.target is not None:
        raise GraphError(f"{edges.path}: --source and --target go together; name both columns")
    ends = edges.endpoints()
    nodes = set(known)
    if ends is None and not nodes & edges.columns.keys():
        held = [name for name, cells in edges.columns.items() if cells and nodes.issuperset(cells)]
        if len(held) == 2:
            logger.info("%s: columns %s hold the ends of the edges", edges.path, quoted(held))
            return held[0], held[1]
    if ends is None:
        edges.refuse_matrix()
        if smiles := [name for name in edges.columns if "smiles" in name.casefold()]:
            raise GraphError(
                f"{edges.path}: holds molecules, judging by its column {smiles[0]!r}, where a "
                "single graph is needed"
            )
        is_short = len(edges.columns) <= 3  # as rows without a header are
        first = " (1 and 2 if the first row is an edge)" if is_short else ""
        raise GraphError(
            f"{edges.path}: needs the columns 'source' and 'target', but has "
            f"{quoted(edges.columns)}; name them with --source and --target{first}"
        )
    return ends


def _weight(edges: Table, columns: Columns, ends: tuple[str, str]) -> str | None:
    """Return the column of weights; log which columns are left out."""
    if columns.weight == "none" and "none" not in edges.columns:
        return None
    if columns.weight is not None:
        return edges.said(columns.weight)
    found = edges.named(*WEIGHTS)
    left = [
        column
        for column in edges.columns
        if column not in (found, *ends) and plain_name(column) not in (*UNNAMED, *IDS)
    ]
    if left:
        hint = "" if found else "; --weight takes a column as the edges' weights"
        logger.info("%s: columns left out: %s%s", edges.path, quoted(left), hint)
    return found


def _of_nodes(table: Table, columns: Columns, labels: bool) -> dict[str, Any]:
    """Return the fields of :class:`Graph` that a table of nodes has."""
    table.refuse_no_header()
    ids = table.chosen(columns.id, *IDS)
    if ids is None:
        ids = next(iter(table.columns))
        called = repr(ids) if ids else "which has no name"
        logger.info("%s: the first column, %s, is read as the ids", table.path, called)
    label, names = _label(table, columns, labels)
    asked = columns.split if labels or columns.split in table.columns else None
    split = table.split(asked) if labels or asked is not None else table.named(SPLIT)
    masks = table.marks()
    features: Sequence[str]
    if columns.features is None:
        spoken_for = (ids, label, names, split, *masks.values())
        others = [each for each in table.columns if each not in spoken_for]
        features = _usual_features(table, others, labels)
    else:
        features = [table.said(column) for column in columns.features]
    nodes: dict[str, Any] = {"node_ids": tuple(table.index(ids))}
    if label is not None:
        nodes |= _label_fields(table, label)
    nodes |= feature_fields(table, features)
    if label is not None:
        _warn_of_labels_again(table, nodes)
    return nodes | _split_fields(table, None if split in features else split, masks)


def _label_fields(table: Table, label: str) -> dict[str, Any]:
    """Return the fields of :class:`Graph` for a column of labels; warn of odd classes."""
    different = len(set(table.columns[label]))
    if different > _MANY or 2 * different > len(table.lines):  # numbers, rather than classes
        table = without_units(table, [label])
    y, names = table.classes(label)
    empty = {cell for cell in table.columns[label] if cell and is_missing(cell)}
    if empty:
        told = "%s: column %r: %s is read as no label; write another word if it is a class"
        logger.info(told, table.path, label, quoted(sorted(empty)))
    if (values := plain_numbers(names)) is not None:
        known = np.append(values, np.nan)  # for -1
        warn_of_stand_ins(table, label, known[y])
    for word in names:
        if word.casefold() in _NOT_KNOWN or (word == "-1" and "0" in names):
            told = "%s: %s in column %r is read as a class; leave cells without a label empty"
            logger.warning(told, table.path, word, label)
        parts = _PARTED.split(word)
        if len(parts) > 1 and {*parts} <= {*names}:
            logger.warning(
                "%s: %r in column %r is read as a class of its own; to give nodes several "
                "labels, store y [n, labels] in an npz file", table.path, word, label,
            )  # fmt: skip
    return {"y": y, "class_names": names, "label_name": label}


def _split_fields(table: Table, split: str | None, masks: Mapping[str, str]) -> dict[str, Any]:
    """Return the masks of :class:`Graph` from a column of parts, or columns of truth values."""
    if split is None:
        return {mask: table.booleans(name) for mask, name in masks.items()}
    if masks:
        other = next(iter(masks.values()))
        raise GraphError(
            f"{table.path}: columns {split!r} and {other!r} both hold a split; remove one"
        )
    part = table.parts(split)
    found = {mask: part == number for number, mask in enumerate(MASKS)}
    table.say_split(split, [int(mask.sum()) for mask in found.values()])
    return found


def _warn_of_labels_again(table: Table, nodes: Mapping[str, Any]) -> None:
    """Warn of features that equal the labels."""
    known = nodes["y"] >= 0
    y, count = nodes["y"][known], len(nodes["class_names"])
    if not 1 < count <= len(y) / 2 or len(y) < _FEW:
        return
    columns = nodes.get("x", np.empty((0, 0))).T
    for name, column in zip(nodes.get("feature_names", ()), columns, strict=True):
        values = column[known]
        if len(np.unique(values)) != count:
            continue
        if len({*zip(values.tolist(), y.tolist(), strict=True)}) == count:
            told = "%s: column %r gives away the label, but is a feature; --set %s leaves it out"
            logger.warning(told, table.path, name, quote(f"columns.{name}=drop"))


def _usual_features(table: Table, columns: Sequence[str], labels: bool) -> list[str]:
    """Return the columns that may describe nodes; log the others.

    With ``labels``, refuses a column that may mark a part of a split.
    """
    features: list[str] = []
    left: list[str] = []
    for column in columns:
        plain, cells = plain_name(column), table.columns[column]
        if plain in UNNAMED:
            continue
        if labels:
            table.refuse_half_a_split(column, "name the features with --features")
        names_nodes = is_id(column) or plain in NAMES
        useless = plain in FOLDS or (names_nodes and len({*cells}) == len(cells) > 1)
        (left if useless else features).append(column)
    if left:
        told = (
            "%s: columns left out, as they tell nodes apart or number folds: %s; --features "
            "includes them"
        )
        logger.info(told, table.path, quoted(left))
    return features


def _label(table: Table, columns: Columns, labels: bool) -> tuple[str | None, str | None]:
    """Return the column of labels, and a column called label that holds names of nodes."""
    found, names = table.named(LABEL), None
    if found is not None and found != columns.label:
        # Of Gephi and others, which have a column timeset, or attributes in place of a table.
        may_be_names = table.named("timeset", "interval") is not None or table.row != "row"
        words = table.written(found)
        if may_be_names and len(set(words)) == len(words) > 2:
            logger.info("%s: %r names the nodes, as each is different", table.path, found)
            found, names = None, found
    if columns.label is not None:
        absent = not labels and columns.label not in table.columns
        return None if absent else table.said(columns.label), names
    if found is not None:
        return found, names
    others = [name for name in table.columns if plain_name(name) in OTHER_LABELS]
    if len(others) > 1:
        raise GraphError(f"{table.path}: {quoted(others)} may be the label; say which with --label")
    if others:
        logger.info("%s: column %r is read as the label", table.path, others[0])
    return (others[0] if others else None), names


def feature_fields(table: Table, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of :class:`Graph` for some columns as features."""
    if not names:
        return {}
    read = {name: feature_column(table, name) for name in names}
    return {
        "x": np.stack([column.numbers for column in read.values()], axis=1),
        "feature_names": tuple(read),
        "feature_words": {n: c.words for n, c in read.items() if c.words is not None} or None,
        "feature_units": {n: c.unit for n, c in read.items() if c.unit} or None,
    }
