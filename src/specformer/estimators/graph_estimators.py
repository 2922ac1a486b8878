r"""Estimators of whole graphs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from specformer.errors import ConfigError, GraphError
from specformer.estimators.base_estimator import (
    Classifier,
    Estimator,
    Regressor,
    as_class_numbers,
    as_columns,
    as_entries,
    is_column,
    own_state,
    zeros_and_ones,
)
from specformer.graphs import GraphSet
from specformer.graphs.columns import quoted
from specformer.graphs.formats.graph_set_pyg import graph_set_from_pyg
from specformer.graphs.formats.molecule_table import smiles_column
from specformer.graphs.formats.npz_file import write_graph_set
from specformer.graphs.formats.smiles import read_smiles
from specformer.tasks.graphs.graph_models import columns_of, load_graph_models, same_columns
from specformer.tasks.graphs.graph_predict import predict_graphs, strange_graphs
from specformer.tasks.graphs.graph_recipe import built_recipe
from specformer.tasks.graphs.graph_work import GraphWork
from specformer.tasks.job import Kind
from specformer.training.runs.folder import RunFolder

logger = logging.getLogger(__name__)


class GraphEstimator(Estimator):
    """The base of classifiers and regressors of whole graphs."""

    kind: ClassVar[Kind] = "molecules"
    things: ClassVar[str] = "graphs"
    skips_minus_one: ClassVar[bool] = False

    @own_state()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from graphs, a share of which, ``validation_fraction``, picks the best epoch.

        Args:
            X: a list of PyG ``Data``, a PyG ``Batch`` or data set, a list or a DataFrame's column
                of SMILES, or a DataFrame with a column of SMILES.
            y: the targets ``[graphs]`` or ``[graphs, targets]``, NaN if unknown; None for those of
                ``X``.
        """
        self._given = None if y is None else as_entries(y)
        graphs = self._targeted(graph_set_of(X), y)
        if graphs.y is None:
            raise GraphError("the graphs have no targets; pass y")
        known = ~np.asarray(np.isnan(graphs.y).all(axis=1))
        job, place = self._resolve(), self._place()
        if any(change.startswith("targets=") for change in job.changes):
            raise ConfigError("settings['targets'] would change nothing: pass those targets as y.")
        job = replace(job, settings=replace(job.settings, targets=None))  # a run's own recipe
        has_classes = self.task == "classification" and graphs.num_tasks == 1
        classes = graphs.y[:, 0] if has_classes else np.zeros(len(graphs))
        splits = self._split_train(job, known, np.zeros_like(known), classes)
        given = replace(job, settings=replace(job.settings, split="given"))
        self._train(job, GraphWork.on(given, place, graphs, splits), place)
        self._graphs = graphs
        self._adopt(graphs.node_feat.shape[1] + graphs.num_features)
        return self

    def _tested(self, X: Any, y: Any, weight: Any) -> tuple[GraphSet, Any, Any]:
        """Graphs, targets and weights to score; by default the targets that the graphs have."""
        graphs = graph_set_of(X)
        if y is None:
            self._refuse_own_labels()
            if graphs.y is None:
                raise GraphError("the graphs have no targets; pass y")
        true, known = self._true(self._own_targets(graphs) if y is None else y, len(graphs))
        weight = None if weight is None else np.asarray(weight)[known]
        return graphs.subset(np.flatnonzero(known)), np.array(true[known].tolist()), weight

    def _own_targets(self, graphs: GraphSet) -> Any:
        """The targets that graphs came with, as :meth:`predict` gives them."""
        assert graphs.y is not None
        return graphs.y[:, 0] if graphs.num_tasks == 1 else graphs.y

    def _read_models(self, run: RunFolder) -> None:
        self.models_ = list(load_graph_models(run))
        columns = columns_of(self.models_[0])
        self._adopt(columns["features of atoms"] + columns.get("numbers of atoms", 0))

    def _targeted(self, graphs: GraphSet, y: Any) -> GraphSet:
        """The graphs with these targets, or with their own."""
        if y is None:
            return graphs
        columns = as_columns(y, len(graphs))
        return replace(graphs, y=columns, task_names=None, class_names=None)

    def _adopt(self, features: int) -> None:
        settings = self.result_["settings"]
        self._recipe = built_recipe(self.model, settings, "result.json: settings")
        self.n_features_in_ = features

    def _write_data(self, path: Path) -> None:
        write_graph_set(path, self._graphs)

    def _outputs(self, data: Any) -> np.ndarray:
        check_is_fitted(self)
        graphs, place = graph_set_of(data), self._place()
        same_columns(graphs, self.models_[0])
        strange = strange_graphs(graphs, self.result_["seen"])
        base = np.asarray(self.result_["base"], dtype=np.float64)
        found = np.tile(base, (len(graphs), 1))
        known = [number for number in range(len(graphs)) if number not in strange]
        for number, what in list(strange.items())[:1]:
            logger.warning(
                "%d of %d graphs are predicted by the training mean: %s %s",
                len(strange), len(graphs),
                graphs.smiles[number] if graphs.smiles else f"graph {number}", what,
            )  # fmt: skip
        if known:
            each = predict_graphs(self.models_, graphs.subset(known), self._recipe, place)
            found[known] = each.mean(dim=0).numpy()
        return found


class GraphClassifier(Classifier, GraphEstimator):
    """Classes of graphs, or several labels of 0 and 1.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> path = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> x = torch.zeros(4, 1, dtype=torch.long)
        >>> graphs = [Data(edge_index=ends, x=x) for ends in (ring, path)]
        >>> clf = GraphClassifier(epochs=2).fit(graphs * 10, ["ring", "path"] * 10)
        >>> clf.predict_proba(graphs).shape
        (2, 2)
    """

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities ``[graphs, classes]`` in the order of ``classes_``.

        With several labels, the probabilities ``[graphs, labels]`` of 1.
        """
        found = self._outputs(X)
        if not isinstance(self.classes_, list) and found.shape[1] == 1:
            return np.column_stack([1.0 - found[:, 0], found[:, 0]])
        return found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy; with several labels, the share of graphs with all of them right.

        Without ``y``, the labels are those of ``X``, as in ``fit``, and graphs that lack one do not
        count.
        """
        return float(super().score(*self._tested(X, y, sample_weight)))

    def _targeted(self, graphs: GraphSet, y: Any) -> GraphSet:
        if y is None and graphs.y is not None and graphs.num_tasks == 1:
            y = self._own_targets(graphs)
        if y is None or not is_column(y):
            graphs = super()._targeted(graphs, y)
            self.classes_ = zeros_and_ones(graphs.num_tasks)
            return graphs
        numbers, self.classes_ = as_class_numbers(y, self.skips_minus_one)
        if len(numbers) != len(graphs):
            raise GraphError(f"y has {len(numbers)} labels for {len(graphs)} graphs; give one each")
        targets = np.where(numbers < 0, np.nan, numbers).reshape(-1, 1)
        names = tuple(map(str, self.classes_))
        return replace(graphs, y=targets, task_names=None, class_names=names)

    def _own_targets(self, graphs: GraphSet) -> Any:
        own, names = super()._own_targets(graphs), graphs.class_names
        if own.ndim > 1:
            return own
        if names is not None:
            return [None if np.isnan(label) else names[int(label)] for label in own]
        if (own[~np.isnan(own)] == np.floor(own[~np.isnan(own)])).all():
            return [None if np.isnan(label) else int(label) for label in own]
        return own


class GraphRegressor(Regressor, GraphEstimator):
    """Numbers of graphs, such as molecules.

    Example:
        >>> model = GraphRegressor(epochs=5).fit(["CCO", "CC", "CCC", "CO"] * 5, [1, 2, 3, 4] * 5)
        ... # doctest: +SKIP
        >>> model.predict(["CCCC"])  # doctest: +SKIP
    """

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The coefficient of determination R²; arguments as in :meth:`GraphClassifier.score`."""
        return float(super().score(*self._tested(X, y, sample_weight)))


def graph_set_of(graphs: Any) -> GraphSet:
    """A user's graphs: PyG's, SMILES, or a table with a column of SMILES."""
    if isinstance(graphs, GraphSet):
        return graphs
    if hasattr(graphs, "columns"):  # a DataFrame
        named = smiles_column([str(column) for column in graphs.columns])
        if len(graphs.columns) > 1 and len(named) != 1:
            told = f"several columns of SMILES, {quoted(named)}" if named else "no column of SMILES"
            raise GraphError(f"the table has {told}; pass that column alone")
        graphs = graphs[named[0] if named else graphs.columns[0]]
    if isinstance(graphs, np.ndarray) and graphs.ndim == 2 and graphs.shape[1] == 1:
        graphs = graphs[:, 0]  # a table of one column, as scikit-learn hands them on
    if isinstance(graphs, str):
        raise GraphError(f"{graphs!r} is one text; pass a list of SMILES")
    listed = list(graphs) if not hasattr(type(graphs), "edge_index") else graphs
    if isinstance(listed, list) and any(isinstance(each, str) for each in listed):
        found = read_smiles(listed)
        if found.problems:
            raise GraphError(f"X: {found.problems[0]}")
        return found.graphs
    return graph_set_from_pyg(listed)
