r"""Node features for models, prepared by rules that are fitted on the training nodes of a split."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
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
                (not negative, half of it zero, at least 32 columns unless it is stored as sparse),
                else chooses for each column
                (:func:`~specformer.datasets.feature_columns.fit_column`); ``"counts"`` does the
                same but leaves a bag of words as it is.
            columns: how to prepare some of the columns.
        """
        asked = dict(columns or {})
        _check_names(graph, asked)
        if features in ("auto", "counts") and not asked and _is_bag_of_words(graph, train):
            features = "rows" if features == "auto" else "none"
        if features == "rows" or features == "none":
            _refuse_raw(graph, features)
            return cls(features, graph.num_features)
        table = _Table(graph)
        fitted = tuple(
            fit_column(
                name,
                graph.of_all(table.numbers(name))[train],
                table.words(name),
                asked.get(name),
                robust=features != "standard",
            )
            for name in table.names
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
            table = _Table(graph)
            parts = [
                column.values(table.numbers(column.name), table.words(column.name))
                for column in self.columns
                if column.width
            ]
            x = np.concatenate(parts, axis=1)
        spare = self.width - x.shape[1]
        return np.pad(x, ((0, 0), (0, spare))) if spare else x

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


class _Table:
    """The columns of a graph's features by name; without names they are called 0, 1, …."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.names = graph.feature_names or tuple(map(str, range(graph.num_features)))
        self._places = {name: place for place, name in enumerate(self.names)}

    @cached_property
    def _x(self) -> NDArray[np.float32]:
        x = self._graph.x
        return x.toarray() if isinstance(x, sp.csr_array) else np.asarray(x)

    def numbers(self, name: str) -> NDArray[np.float32]:
        return self._x[:, self._places[name]]

    def words(self, name: str) -> tuple[str, ...] | None:
        return (self._graph.feature_words or {}).get(name)


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
        lines = [f"column {each['column']!r}: {each['prepared']}" for each in prepared.told()]
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
    told = np.column_stack([(graph.x >= 0).all(axis=1), np.count_nonzero(graph.x, axis=1)])
    positive, filled = graph.of_all(told)[train].T
    return bool(positive.all() and 2 * filled.sum() <= len(filled) * graph.x.shape[1])


def _refuse_raw(graph: Graph, features: str) -> None:
    """Refuse words and missing values, which need prepared columns."""
    hint = "use features=auto, which prepares each column"
    for name in graph.feature_words or ():
        raise ConfigError(f"features={features}: column {name!r} holds words; {hint}.")
    if isinstance(graph.x, np.ndarray) and (empty := np.isnan(graph.x).any(axis=0)).any():
        name = _Table(graph).names[int(empty.argmax())]
        raise ConfigError(f"features={features}: column {name!r} has missing values; {hint}.")


def _check_names(graph: Graph, asked: Mapping[str, How]) -> None:
    names = _Table(graph).names
    for name in asked:
        if name not in names:
            close = nearest(name, names)
            hint = f"did you mean {close!r}?" if close else f"it has {', '.join(names[:_NAMED])}."
            raise ConfigError(f"columns.{name}: {graph.name} has no such feature; {hint}")


#: The names of the structural features, in order.
STRUCTURAL = (
    "log degree",
    "clustering coefficient",
    "return in 2 steps",
    "return in 3 steps",
    "return in 4 steps",
)
#: Most entries of A² in memory at a time.
_HELD = 2**24


def with_structural_features(graph: Graph) -> Graph:
    r"""The graph with five structural features of each node in place of its own features.

    They are log(1 + degree), the share of pairs of its neighbours that are linked, and the
    probability that a random walk from it is back after 2, 3 and 4 steps, the diagonal of
    :math:`(D^{-1} A)^k`.

    Example:
        >>> triangle = Graph(sp.csr_array(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])))
        >>> with_structural_features(triangle).x[0].round(2).tolist()
        [1.1, 1.0, 0.5, 0.25, 0.38]
    """
    degree: np.ndarray = np.asarray(graph.adjacency.sum(axis=1)).ravel()
    x = np.column_stack([np.log1p(degree), _clustering(graph.adjacency), _returns(graph.adjacency)])
    return replace(graph, x=x, feature_names=STRUCTURAL, feature_words=None)


def with_features(graph: Graph, source: str) -> Graph:
    """The graph, with structural features if it has none or each has a single value.

    The change is logged; ``source`` is the graph's name there.
    """
    if graph.x is None:
        why = "has no node features"
    elif isinstance(graph.x, np.ndarray) and all(map(_has_one_value, graph.x.T)):
        why = "every column of features has a single value"
    else:
        return graph
    logger.info("%s: %s; used are %s", source, why, ", ".join(STRUCTURAL))
    return with_structural_features(graph)


def _has_one_value(column: NDArray[np.float32]) -> bool:
    """Whether all values are equal, or all are missing."""
    return bool((column == column[0]).all() or np.isnan(column).all())


def _clustering(adjacency: sp.csr_array) -> np.ndarray:
    """The share of pairs of each node's neighbours that are linked, 0 if there is no pair."""
    edges = adjacency.astype(bool).astype(np.float64)
    edges = sp.csr_array(edges - sp.diags_array(edges.diagonal()))
    edges.eliminate_zeros()
    degree = np.diff(edges.indptr)
    closed = np.zeros(len(degree))
    for rows in _blocks(edges):
        closed[rows] = (edges[rows] @ edges).multiply(edges[rows]).sum(axis=1)
    return closed / np.maximum(degree * (degree - 1.0), 1.0)


def _returns(adjacency: sp.csr_array) -> np.ndarray:
    """Probabilities that a random walk is back after 2, 3 and 4 steps, ``[n, 3]``."""
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    step = sp.csr_array(sp.diags_array(inverse) @ adjacency)
    back = sp.csr_array(adjacency @ sp.diags_array(inverse))  # the transposed matrix
    found = np.zeros((len(degree), 3))
    found[:, 0] = step.multiply(back).sum(axis=1)
    for rows in _blocks(adjacency):
        two = sp.csr_array(step[rows] @ step)
        found[rows, 1] = two.multiply(back[rows]).sum(axis=1)
        # Random walks are reversible: d_i (P²)_ij = d_j (P²)_ji.
        found[rows, 2] = degree[rows] * (two.multiply(two) @ inverse)
    return found


def _blocks(matrix: sp.csr_array) -> list[slice]:
    """Blocks of rows whose products with the matrix fit into memory."""
    counts = np.diff(matrix.indptr).astype(np.float64)
    products = np.cumsum(abs(matrix).astype(bool) @ counts)
    blocks, start = [], 0
    while start < len(counts):
        before = products[start - 1] if start else 0.0
        end = max(start + 1, int(np.searchsorted(products, before + _HELD, side="right")))
        blocks.append(slice(start, end))
        start = end
    return blocks
