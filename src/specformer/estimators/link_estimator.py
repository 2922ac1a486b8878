r"""Learning the links of one graph, in scikit-learn's words."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from specformer.errors import GraphError
from specformer.estimators.node_estimators import SingleGraphEstimator, featured, node_graph_of
from specformer.tasks.job import Kind
from specformer.tasks.links.link_learning import LinkLearning
from specformer.tasks.links.link_predict import LinkScores, likeliest
from specformer.training.evaluation.link_objectives import link_scores


class LinkPredictor(SingleGraphEstimator):
    """Which nodes of a graph are linked, or should be.

    The same job as ``specformer train --task links``. Links are held out as the recipe's ``split``
    says; ``result_["figures"]`` has what that gave, and ``validation_fraction`` is not asked.

    Pairs are numbers of nodes ``[2, count]``, as PyG's ``edge_label_index``.

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

    def fit(self, data: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn from the edges of a graph, as :meth:`NodeClassifier.fit` takes them; no labels."""
        graph, job = featured(node_graph_of(data)), self._resolve()
        self._learn(job, LinkLearning().links_of(job, graph), graph)
        self._name_classes()
        return self

    def decision_function(self, data: Any, pairs: Any) -> np.ndarray:
        """Log-odds ``[count]`` of links between the pairs, the mean over all models.

        All edges of ``data`` are known to the models, those of the pairs as well.
        """
        outputs = self._each(data)
        return link_scores(outputs, _checked(pairs, outputs.shape[1])).mean(dim=0).numpy()

    def predict_proba(self, data: Any, pairs: Any) -> np.ndarray:
        """Probabilities ``[count, 2]`` of no link and of one, against one pair drawn at random."""
        chances = torch.as_tensor(self.decision_function(data, pairs)).sigmoid().numpy()
        return np.column_stack([1 - chances, chances])

    def predict(self, data: Any, pairs: Any) -> np.ndarray:
        """1 for pairs ``[count]`` that are likelier linked than one drawn at random, else 0."""
        return (self.decision_function(data, pairs) > 0).astype(np.int64)

    def missing(self, data: Any, count: int = 100) -> np.ndarray:
        """The likeliest pairs ``[2, count]`` that are no edge of the graph, the best first."""
        return likeliest(self._each(data), node_graph_of(data), count).numpy()

    def score(self, data: Any, pairs: Any, y: Any) -> float:
        """The ROC-AUC of pairs that are links (1) or not (0)."""
        return float(roc_auc_score(np.asarray(y), self.decision_function(data, pairs)))

    def _name_classes(self) -> None:
        self.classes_ = np.array([0, 1])


def _checked(pairs: Any, nodes: int) -> Tensor:
    given = np.asarray(pairs)
    if given.ndim != 2 or len(given) != 2 or given.dtype.kind not in "iu":
        raise GraphError(
            f"pairs must be whole numbers of shape [2, count], not {given.dtype} "
            f"{list(given.shape)}"
        )
    if given.size and not (given.min() >= 0 and given.max() < nodes):
        raise GraphError(f"pairs must hold numbers of nodes from 0 to {nodes - 1}")
    return torch.as_tensor(given.astype(np.int64))
