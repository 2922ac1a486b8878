r"""Node features for models, prepared by rules that are fitted on the training nodes of a split."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from specformer.datasets.feature_columns import How, PreparedColumn, fit_column
from specformer.datasets.splits import Split
from specformer.errors import ConfigError, GraphError, RunError, nearest
from specformer.graphs import Graph

logger = logging.getLogger(__name__)

#: How a whole table is prepared: by its content, or as asked for.
Features = Literal["auto", "counts", "rows", "none", "standard"]

#: Fewest columns of a bag of words that is not stored as sparse.
_WIDE = 32
#: Rows of a bag of words have no number this many times their smallest, but for this share of them.
_UNLIKE, _UNLIKE_SHARE = 25.0, 0.1
#: Most columns that are named one by one.
_NAMED = 12


@dataclass(frozen=True)
class FeaturePreparation:
    """How the features of a graph are prepared, fitted on the training nodes of one split.

    Attributes:
        scaling: ``"rows"`` divides each node's features by their sum if that exceeds 1,
            ``"none"`` leaves them, ``"columns"`` prepares each column by itself.
        width: the number of features for a model; zeros fill up if columns make fewer.
        columns: how each column is prepared.

    Example:
        >>> graph = Graph(sp.csr_array((4, 4)), x=np.float32([[20, 0], [40, 1], [30, 1], [90, 0]]))
        >>> learned = FeaturePreparation.fit(graph, np.array([True, True, False, False]))
        >>> learned.dense(graph).tolist()
        [[-1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [6.0, 0.0]]
    """

    scaling: Literal["rows", "none", "columns"]
    width: int
    columns: tuple[PreparedColumn, ...] = ()

    @classmethod
    def fit(
        cls,
        graph: Graph,
        train: NDArray[np.bool_],
        features: Features = "auto",
        columns: Mapping[str, How] | None = None,
    ) -> FeaturePreparation:
        """Fit to the training nodes; of other nodes nothing is used.

        Args:
            graph: with features.
            train: mask of the training nodes.
            features: ``"rows"`` and ``"none"`` take numbers alone; ``"standard"`` standardises
                every column of numbers; ``"auto"`` divides rows if the table is like a bag of words
                (not negative, half of it zero, of alike sizes within rows, at least 32 columns
                unless it is stored as sparse), else chooses for each column
                (:func:`~specformer.datasets.feature_columns.fit_column`); ``"counts"`` does the
                same but leaves a bag of words as it is.
            columns: how to prepare some of the columns.
        """
        asked = dict(columns or {})
        names = _names(graph)
        strange = next((name for name in asked if name not in names), None)
        if strange is not None:
            close = nearest(strange, names)
            hint = f"did you mean {close!r}?" if close else f"it has {', '.join(names[:_NAMED])}."
            raise ConfigError(f"columns.{strange}: {graph.name} has no such feature; {hint}")
        if features in ("auto", "counts") and not asked and _is_bag_of_words(graph, train):
            features = "rows" if features == "auto" else "none"
        if features == "rows" or features == "none":
            _refuse_raw(graph, features)
            return cls(features, graph.num_features)
        robust, units = features != "standard", graph.feature_units or {}
        fitted = tuple(
            replace(
                fit_column(name, graph.of_all(own)[train], words, asked.get(name), robust=robust),
                unit=units.get(name, ""),
            )
            for name, (own, words) in _columns(graph).items()
        )
        width = sum(column.width for column in fitted)
        if width == 0:
            raise GraphError(
                f"{graph.name}: every column of features has a single value on the training nodes; "
                "remove them, and features are computed from the edges"
            )
        return cls("columns", width, fitted)

    def dense(self, graph: Graph) -> NDArray[np.float32]:
        """The prepared features of a graph's nodes, ``[n, width]``; columns are found by name."""
        if self.scaling != "columns":
            x = dense_features(graph, self.scaling)
        else:
            table = _columns(graph)
            parts = [column.values(*table[column.name]) for column in self.columns if column.width]
            x = np.concatenate(parts, axis=1)
        spare = self.width - x.shape[1]
        return np.pad(x, ((0, 0), (0, spare))) if spare else x

    def doubts(self, graph: Graph) -> list[str]:
        """Why columns of a graph may not be those that were fitted, in words."""
        if self.scaling != "columns":
            return []
        table, units = _columns(graph), graph.feature_units or {}
        fitted = [each for each in self.columns if each.width]
        found = [(f.name, f.doubt(*table[f.name], units.get(f.name, ""))) for f in fitted]
        return [f"column {name!r} {doubt}" for name, doubt in found if doubt]

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the columns that a graph must have."""
        return tuple(column.name for column in self.columns if column.width)

    def told(self) -> list[dict[str, str]]:
        """Each column and how it is prepared, in words."""
        return [{"column": column.name, "prepared": str(column)} for column in self.columns]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> FeaturePreparation:
        """The preparation from the values of :meth:`to_json`."""
        try:
            columns = tuple(
                PreparedColumn(**{**column, "words": tuple(column["words"])})
                for column in content["columns"]
            )
            return cls(**{**content, "columns": columns})
        except (KeyError, TypeError) as error:
            raise RunError(f"is not a preparation of features ({error})") from None


def _names(graph: Graph) -> tuple[str, ...]:
    """The names of the features; without names they are called 0, 1, …."""
    return graph.feature_names or tuple(map(str, range(graph.num_features)))


def _columns(graph: Graph) -> dict[str, tuple[NDArray[np.float32], tuple[str, ...] | None]]:
    """Each column of features by name: its numbers, and the words that they stand for, if any."""
    assert graph.x is not None
    x = graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x
    words = graph.feature_words or {}
    return {name: (own, words.get(name)) for name, own in zip(_names(graph), x.T, strict=True)}


def prepare_features(
    graph: Graph,
    splits: Sequence[Split],
    features: Features = "auto",
    columns: Mapping[str, How] | None = None,
) -> list[FeaturePreparation]:
    """One preparation per split, fitted on its training nodes, all of the same width."""
    fitted = {
        split.fingerprint: FeaturePreparation.fit(graph, split.train, features, columns)
        for split in {each.fingerprint: each for each in splits}.values()
    }
    width = max(each.width for each in fitted.values())
    return [replace(fitted[split.fingerprint], width=width) for split in splits]


def preparation_lines(prepared: FeaturePreparation) -> list[str]:
    """How a graph's features are prepared, one line per column, or per kind if there are many."""
    if prepared.scaling == "rows":
        lines = ["each node's features are divided by their sum, where that exceeds 1"]
    elif prepared.scaling == "none":
        lines = ["features are left as they are"]
    else:
        lines = [f"column {column.name!r}: {column}" for column in prepared.columns]
    if len(lines) > _NAMED:
        alike: dict[str, list[PreparedColumn]] = {}
        for column in prepared.columns:
            alike.setdefault(column.in_short, []).append(column)
        several = [
            f"{len(own):,} columns, {own[0].name!r} to {own[-1].name!r}: {how}"
            for how, own in alike.items()
            if len(own) > 1
        ]
        singles = [f"column {own[0].name!r}: {own[0]}" for own in alike.values() if len(own) == 1]
        lines = [*several, *singles]
    return lines


def dense_features(graph: Graph, scaling: Literal["rows", "none"] = "rows") -> NDArray[np.float32]:
    """Features ``[n, features]``, each row divided by its sum if that exceeds 1, or unchanged.

    Example:
        >>> graph = Graph(sp.csr_array((2, 2)), x=np.array([[1.0, 3.0], [0.5, 0.0]]))
        >>> dense_features(graph).tolist()
        [[0.25, 0.75], [0.5, 0.0]]
    """
    assert graph.x is not None
    _refuse_raw(graph, scaling)
    dense = graph.x.toarray() if sp.issparse(graph.x) else np.asarray(graph.x)
    if scaling == "none":
        return np.asarray(dense, dtype=np.float32)
    return np.asarray(dense / np.maximum(dense.sum(axis=1, keepdims=True), 1.0), dtype=np.float32)


def sparse_features(graph: Graph, scaling: Literal["rows", "none"] = "rows") -> sp.csr_array:
    """:func:`dense_features` of a graph with sparse features, as compressed rows."""
    assert isinstance(graph.x, sp.csr_array)
    if scaling == "none":
        return graph.x
    sums = np.maximum(np.asarray(graph.x.sum(axis=1)).ravel(), 1.0)
    return sp.csr_array(sp.diags_array(1.0 / sums) @ graph.x)


def _is_bag_of_words(graph: Graph, train: NDArray[np.bool_]) -> bool:
    assert graph.x is not None
    if graph.feature_words:
        return False
    if isinstance(graph.x, sp.csr_array):
        x = graph.x[train]
        return bool((x.data >= 0).all()) and 2 * x.nnz <= x.shape[0] * x.shape[1]
    if graph.x.shape[1] < _WIDE:
        return False
    least = np.where(graph.x > 0, graph.x, np.inf).min(axis=1)
    told = np.column_stack(
        [
            (graph.x >= 0).all(axis=1),
            np.count_nonzero(graph.x, axis=1),
            graph.x.max(axis=1) > _UNLIKE * least,
        ]
    )
    positive, filled, unlike = graph.of_all(told)[train].T
    half_empty = 2 * filled.sum() <= len(filled) * graph.x.shape[1]
    return bool(positive.all() and half_empty and unlike.mean() <= _UNLIKE_SHARE)


def _refuse_raw(graph: Graph, features: str) -> None:
    """Refuse words and missing values, which need prepared columns."""
    hint = "use features=auto, which prepares each column"
    for name in graph.feature_words or ():
        raise ConfigError(f"features={features}: column {name!r} holds words; {hint}.")
    if isinstance(graph.x, np.ndarray) and (empty := np.isnan(graph.x).any(axis=0)).any():
        name = _names(graph)[int(empty.argmax())]
        raise ConfigError(f"features={features}: column {name!r} has missing values; {hint}.")
