"""The jobs of ``specformer train`` as scikit-learn estimators."""

from __future__ import annotations

from pathlib import Path

from specformer.errors import RunError
from specformer.estimators.base_estimator import Estimator
from specformer.estimators.graph_estimators import GraphClassifier, GraphRegressor
from specformer.estimators.node_estimators import LinkPredictor, NodeClassifier, NodeRegressor
from specformer.training.runs.folder import RunFolder

__all__ = [
    "Estimator",
    "GraphClassifier",
    "GraphRegressor",
    "LinkPredictor",
    "NodeClassifier",
    "NodeRegressor",
    "load",
]

_KINDS: dict[tuple[str, str], type[Estimator]] = {
    ("nodes", "classification"): NodeClassifier,
    ("nodes", "regression"): NodeRegressor,
    ("links", "links"): LinkPredictor,
    ("molecules", "classification"): GraphClassifier,
    ("molecules", "regression"): GraphRegressor,
}


def load(folder: str | Path) -> Estimator:
    """The fitted estimator of a folder that ``save`` or ``specformer train`` wrote.

    Example:
        >>> import tempfile
        >>> from specformer.datasets import csbm
        >>> graph = csbm(0.7, num_nodes=100)
        >>> path = NodeClassifier("gcn", epochs=3).fit(graph).save(tempfile.mkdtemp() + "/run")
        >>> load(path).predict(graph).shape
        (100,)
    """
    run = RunFolder.open(folder)
    if run.config().get("command") != "train":
        raise RunError(
            f"{folder}: is not a run of `specformer train` or a saved estimator; of a comparison, "
            "name the folder of one model."
        )
    result = run.result("kind")
    kind = _KINDS.get((str(result["kind"]), str(result.get("task") or "classification")))
    if kind is None:
        raise RunError(
            f"{folder}: there is no estimator for {result['kind']}; name a run on nodes, links or "
            "molecules."
        )
    with run.answering_for_files("no estimator can be made of it"):
        return kind.from_run(run)
