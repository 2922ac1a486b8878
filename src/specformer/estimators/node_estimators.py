r"""Estimators of the nodes or the links of one graph."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from specformer.datasets import Split
from specformer.datasets.structural_features import STRUCTURAL, with_structural_features
from specformer.errors import GraphError
from specformer.estimators.base_estimator import (
    SOURCE,
    Classifier,
    Estimator,
    Regressor,
    as_class_numbers,
    as_columns,
    as_entries,
    as_labels,
    is_column,
    own_state,
    zeros_and_ones,
)
from specformer.graphs import Columns, Graph, as_graph, read_graph, write_npz
from specformer.graphs.checks import as_host, as_scipy
from specformer.graphs.convert import is_networkx
from specformer.graphs.formats.read import graph_from_networkx
from specformer.graphs.formats.table import Table
from specformer.graphs.formats.table_file import cell_text
from specformer.graphs.formats.table_graph import feature_fields
from specformer.graphs.node_targets import with_targets
from specformer.tasks.job import Job, Kind
from specformer.tasks.link_work import LinkScores, LinkWork, likeliest
from specformer.tasks.nodes.node_predict import NodePredictor
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.task import PredictionRequest
from specformer.training.evaluation.link_objectives import link_scores
from specformer.training.runs.folder import DATA, RunFolder

logger = logging.getLogger(__name__)


class SingleGraphEstimator(Estimator):
    """The base of estimators that learn from one graph."""

    predictor: ClassVar[type[NodePredictor]] = NodePredictor

    def _learn(self, job: Job, work: NodeWork, graph: Graph) -> None:
        """Train on a graph with features, and keep the graph."""
        self._train(job, work, self._place())
        self._graph = graph
        self._adopt(self.predictor.of_outcome(self._trained.outcome, self.result_))

    def _read_models(self, run: RunFolder) -> None:
        predictor = self.predictor.of_run(run)
        self.models_ = list(predictor.models)
        self._adopt(predictor)

    def _write_data(self, path: Path) -> None:
        write_npz(path, self._graph)

    def _adopt(self, predictor: NodePredictor) -> None:
        self._predictor = predictor
        names = predictor.result.get("feature_names")
        structural = names is not None and tuple(names) == STRUCTURAL
        self.n_features_in_ = 0 if structural else int(predictor.result["num_features"])
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        if names is not None and not structural:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _each(self, data: Any) -> Tensor:
        """The outputs of every model for the nodes, ``[models, n, channels]``."""
        check_is_fitted(self)
        graph = with_any_features(node_graph_of(data))
        return self._predictor.each(graph, self._place(), PredictionRequest(), SOURCE)

    def _outputs(self, data: Any) -> np.ndarray:
        return self._each(data).mean(dim=0).numpy()


class NodeEstimator(SingleGraphEstimator):
    """The base of classifiers and regressors of nodes."""

    kind: ClassVar[Kind] = "nodes"

    @own_state()
    def fit(self, data: Any, y: Any = None, mask: Any = None) -> Self:
        """Learn from the labelled nodes of a graph.

        Args:
            data: a PyG ``Data``, a NetworkX graph whose nodes have attributes, a pair of features
                ``[n, features]``, an array or a DataFrame of numbers, words, dates and gaps, and an
                adjacency matrix or ``edge_index``, or anything else that
                :func:`specformer.as_graph` takes. Without features, structural ones are used.
            y: labels of the nodes; None for those of ``data``. None, NaN and, among whole numbers,
                -1 are missing labels.
            mask: which nodes ``[n]`` to learn from, as booleans or numbers; a share of them,
                ``validation_fraction``, picks the best epoch. None for the masks of ``data`` or,
                without masks, a 60/20/20 split of labelled nodes, as in ``specformer train``.
        """
        self._given = None if y is None else as_entries(y)
        graph = self._labelled(node_graph_of(data), y)
        graph = with_targets(graph, "regression" if self.task == "regression" else "classification")
        graph = with_any_features(graph)
        job = self._resolve()
        splits = None if mask is None else self._splits(job, graph, mask)
        work = NodeWork.on(job, graph, splits)
        self._learn(job, work, _with_masks(graph, work.splits))
        return self

    @abstractmethod
    def _labelled(self, graph: Graph, y: Any) -> Graph:
        """The graph with these labels; None for its own."""

    def _read_models(self, run: RunFolder) -> None:
        super()._read_models(run)
        if (run.path / DATA).is_file():  # that `save` wrote
            graph = read_graph(run.path / DATA)
            if graph.num_splits == len(self.models_):  # earlier versions wrote the user's masks
                self._graph = graph

    def _tested(self, data: Any, y: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        """True and predicted labels of the nodes that count."""
        check_is_fitted(self)
        graph = node_graph_of(data)
        if y is None and self._is_fitted_on(graph):
            y = self._given
        if y is None:
            self._refuse_own_labels()
            if graph.y is None:
                raise GraphError("the graph has no labels to compare with; pass y")
            if self.task == "regression":
                graph = with_targets(graph, "regression")
        values, known = self._true(graph.y if y is None else y, graph.num_nodes)
        held = self._held_out(graph, known, mask)
        counted = held.any(axis=1)
        if not counted.any():
            raise GraphError("none of the nodes that count has a label; pass other y or mask")
        each, judges = self._each(data).numpy()[:, counted], held[counted].T[..., None]
        true = np.array(values[counted].tolist())  # not of objects
        predicted = self._predicted((each * judges).sum(axis=0) / judges.sum(axis=0))
        if y is None and true.ndim == 1 and graph.class_names:
            true = as_labels(graph.class_names)[true]
        return true.reshape(predicted.shape), predicted

    def _is_fitted_on(self, graph: Graph) -> bool:
        """Whether this is the graph it was fitted on, whatever the labels and features."""
        fitted = getattr(self, "_graph", None)
        if fitted is None or fitted.num_nodes != graph.num_nodes:
            return False
        return (fitted.adjacency != graph.adjacency).nnz == 0

    @abstractmethod
    def _predicted(self, outputs: np.ndarray) -> np.ndarray:
        """What the mean of outputs says: classes, labels or numbers."""

    def _splits(self, job: Job, graph: Graph, mask: Any) -> list[Split]:
        chosen = as_mask(mask, graph.num_nodes) & graph.is_labelled
        assert graph.y is not None
        classes = np.zeros(graph.num_nodes) if graph.num_targets else graph.y
        return self._split_train(job, chosen, graph.is_labelled & ~chosen, classes)

    def _held_out(self, graph: Graph, known: np.ndarray, mask: Any) -> np.ndarray:
        """Which nodes count, and which models predict each of them, ``[n, models]``.

        Of the fitted graph, those that did not learn from it; all of them if there is none.
        """
        fitted = getattr(self, "_graph", None)
        if mask is not None:
            known = known & as_mask(mask, graph.num_nodes)
        elif graph.test_mask is not None:
            known = known & graph.test_mask.any(axis=1)
        if mask is None and fitted is None and graph.num_splits != 1:
            told = "nodes that it learned from may count, as this run does not say which they are"
            logger.warning("score: %s; pass mask, the nodes to score", told)
        every = np.repeat(known[:, None], len(self.models_), axis=1)
        if mask is not None or fitted is None or not self._is_fitted_on(graph):
            return every
        held = every & fitted.test_mask
        return held if held.any() else every


class NodeClassifier(Classifier, NodeEstimator):
    """Classes of a graph's nodes, or several labels of 0 and 1.

    The same job as ``specformer train``: on a CPU the model is the same to the bit.

    Example:
        >>> from specformer.datasets import csbm
        >>> graph = csbm(0.7, num_nodes=200, signal=12.0)
        >>> clf = NodeClassifier("gcn", epochs=50).fit(graph)
        >>> clf.predict(graph).shape, clf.predict_proba(graph).shape, clf.score(graph) > 0.8
        ((200,), (200, 2), True)
    """

    def predict_proba(self, data: Any) -> np.ndarray:
        """Probabilities ``[n, classes]`` in the order of ``classes_``, or ``[n, labels]`` of 1."""
        return self._outputs(data)

    def _labelled(self, graph: Graph, y: Any) -> Graph:
        if y is not None and is_column(y):
            numbers, self.classes_ = as_class_numbers(y)
            return replace(graph, y=numbers, class_names=tuple(map(str, self.classes_)))
        if y is not None:
            graph = replace(graph, y=as_columns(y, graph.num_nodes), class_names=None)
        graph = with_targets(graph, "classification")
        if graph.num_targets:
            self.classes_ = zeros_and_ones(graph.num_targets)
        else:
            self.classes_ = as_labels(graph.class_names or range(graph.num_classes))
        return graph

    def score(self, data: Any, y: Any = None, mask: Any = None) -> float:
        """The accuracy; with several labels, the share of nodes with all of them right.

        Args:
            data: as in :meth:`fit`.
            y: the true labels; None for those that ``fit`` got, if this is its graph, else those of
                ``data``.
            mask: the nodes that count, predicted by all models. By default those of the
                ``test_mask`` of ``data``, or else all. Of the graph it was fitted on, they are only
                test nodes, each predicted by the models that have not learned from it.
        """
        return float(accuracy_score(*self._tested(data, y, mask)))


class NodeRegressor(Regressor, NodeEstimator):
    """Numbers of a graph's nodes.

    Example:
        >>> from specformer.datasets import csbm
        >>> graph = csbm(0.7, num_nodes=200)
        >>> sums = graph.adjacency @ graph.x[:, 0]
        >>> NodeRegressor("mlp", epochs=20).fit(graph, sums).predict(graph).shape
        (200,)
    """

    def _labelled(self, graph: Graph, y: Any) -> Graph:
        if y is None:
            return graph
        return replace(graph, y=as_columns(y, graph.num_nodes), class_names=None)

    def score(self, data: Any, y: Any = None, mask: Any = None) -> float:
        """The coefficient of determination R²; arguments as in :meth:`NodeClassifier.score`."""
        return float(r2_score(*self._tested(data, y, mask)))


def node_graph_of(data: Any) -> Graph:
    """A user's graph, with its features and labels."""
    if isinstance(data, tuple) and len(data) == 2:
        return _of_pair(*data)
    if is_networkx(data):
        return graph_from_networkx(data, Path(data.name or "graph"), Columns())
    if hasattr(data, "columns") or (isinstance(data, np.ndarray) and data.dtype.kind == "f"):
        raise GraphError("features alone do not say which nodes are linked; pass (X, adjacency)")
    return as_graph(data)


def with_any_features(graph: Graph) -> Graph:
    """The graph with its features or, without any, with structural ones."""
    return graph if graph.x is not None else with_structural_features(graph)


def _with_masks(graph: Graph, splits: Sequence[Split]) -> Graph:
    """The graph with the masks of these splits."""
    train, val, test = (
        np.stack([getattr(split, part) for split in splits], axis=1)
        for part in ("train", "val", "test")
    )
    return replace(graph, train_mask=train, val_mask=val, test_mask=test)


def _of_cells(x: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Features in cells of any type, read like those of a file."""
    columns = [x.iloc[:, i] for i in range(len(names))] if hasattr(x, "iloc") else np.asarray(x).T
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise GraphError(f"X: column {twice!r} appears more than once; rename one")
    cells = [list(map(cell_text, column.tolist())) for column in columns]
    table = Table(Path("X"), dict(zip(names, cells, strict=True)), range(len(x)))
    return feature_fields(table, names)


def _of_pair(x: Any, adjacency: Any) -> Graph:
    x = as_scipy(x)
    features = x if hasattr(x, "tocsr") else np.asarray(as_host(x))
    if features.ndim != 2:
        raise GraphError(f"X must have shape [nodes, features], not {list(features.shape)}")
    names = tuple(map(str, x.columns)) if hasattr(x, "columns") else None
    fields: dict[str, Any] = {"x": features, "feature_names": names}
    if features.dtype.kind in "OUSM":  # words, dates, or several types
        fields = _of_cells(x, names or tuple(map(str, range(features.shape[1]))))
    count = features.shape[0]
    if isinstance(adjacency, np.ndarray) and adjacency.shape == (count, count) != (2, 2):
        adjacency = csr_array(adjacency)
    edges = np.ndim(adjacency) == 2 and not hasattr(adjacency, "tocsr")
    graph = as_graph(adjacency, num_nodes=count if edges else None)
    if graph.num_nodes != count:
        raise GraphError(f"there are {count} rows of features for {graph.num_nodes} nodes")
    return replace(graph, **fields)


def as_mask(mask: Any, count: int) -> np.ndarray:
    """A mask ``[n]`` from a mask or a list of nodes."""
    given = np.asarray(as_host(mask))
    if given.dtype == bool:
        if given.shape != (count,):
            raise GraphError(f"mask must have shape [{count}], not {list(given.shape)}")
        return given
    if given.size == 0:
        raise GraphError("mask is empty; name at least one node")
    if given.dtype.kind not in "iu" or given.ndim != 1 or (given >= count).any():
        raise GraphError(f"mask must hold booleans, or numbers of nodes below {count}")
    if len(given) == count > 2 and given.max() < 2:
        raise GraphError("mask holds 0 and 1 for every node; pass booleans: mask.astype(bool)")
    found = np.zeros(count, dtype=bool)
    found[given] = True
    return found


class LinkPredictor(SingleGraphEstimator):
    """Predicts which nodes of a graph are linked.

    The same job as ``specformer train --task links``. Links are held out by the recipe's ``split``;
    ``result_["figures"]`` has the figures on them, and ``validation_fraction`` is not used.

    Pairs are numbers of nodes ``[2, count]``, like PyG's ``edge_label_index``.

    Example:
        >>> from specformer.datasets import csbm
        >>> graph = csbm(0.7, num_nodes=100)
        >>> links = LinkPredictor("gcn", epochs=5).fit(graph)
        >>> links.predict_proba(graph, [[0, 1], [2, 3]]).shape, links.missing(graph, 3).shape
        ((2, 2), (2, 3))
    """

    kind: ClassVar[Kind] = "links"
    task = "links"
    predictor = LinkScores

    @own_state()
    def fit(self, data: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn from the edges of a graph, as in :meth:`NodeClassifier.fit`; ``y`` is not used."""
        graph, job = with_any_features(node_graph_of(data)), self._resolve()
        self._learn(job, LinkWork.of_links(job, graph), graph)
        self._name_classes()
        return self

    def decision_function(self, data: Any, pairs: Any) -> np.ndarray:
        """Log-odds ``[count]`` of links between the pairs, the mean over all models.

        The models see all edges of ``data``, also those between the pairs.
        """
        outputs = self._each(data)
        return link_scores(outputs, _checked(pairs, outputs.shape[1])).mean(dim=0).numpy()

    def predict_proba(self, data: Any, pairs: Any) -> np.ndarray:
        """Probabilities ``[count, 2]`` of no link and of a link, against a random pair."""
        chances = torch.as_tensor(self.decision_function(data, pairs)).sigmoid().numpy()
        return np.column_stack([1 - chances, chances])

    def predict(self, data: Any, pairs: Any) -> np.ndarray:
        """1 for pairs ``[count]`` that are more likely linked than a random pair, else 0."""
        return (self.decision_function(data, pairs) > 0).astype(np.int64)

    def missing(self, data: Any, count: int = 100) -> np.ndarray:
        """The likeliest pairs ``[2, count]`` without an edge in the graph, the best first."""
        return likeliest(self._each(data), node_graph_of(data), count).numpy()

    def score(self, data: Any, pairs: Any, y: Any) -> float:
        """The ROC-AUC of pairs that are links (1) or not (0)."""
        return float(roc_auc_score(np.asarray(y), self.decision_function(data, pairs)))

    def _name_classes(self) -> None:
        self.classes_ = np.array([0, 1])


def _checked(pairs: Any, nodes: int) -> Tensor:
    given = np.asarray(as_host(pairs))
    if given.ndim != 2 or len(given) != 2 or given.dtype.kind not in "iu":
        raise GraphError(
            f"pairs must be whole numbers of shape [2, count], not {given.dtype} "
            f"{list(given.shape)}"
        )
    if given.size and not (given.min() >= 0 and given.max() < nodes):
        raise GraphError(f"pairs must hold numbers of nodes from 0 to {nodes - 1}")
    return torch.as_tensor(given.astype(np.int64))
