"""The same jobs as ``specformer train``'s, in scikit-learn's words."""

from specformer.estimators.base_estimator import Estimator
from specformer.estimators.graph_estimators import GraphClassifier, GraphRegressor
from specformer.estimators.loading import load
from specformer.estimators.node_estimators import NodeClassifier, NodeRegressor

__all__ = [
    "Estimator",
    "GraphClassifier",
    "GraphRegressor",
    "NodeClassifier",
    "NodeRegressor",
    "load",
]
