r"""Grow a forest on fingerprints where other models are trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import torch

from specformer.baselines.graphs.forest import Leaves, MorganForest
from specformer.tasks.graphs.model_settings import ForestModel
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.graphs import GraphMonitor
from specformer.training.evaluation.losses import Loss, mean_error
from specformer.training.loops.graphs import Chosen, GraphFit, GraphTask

_LEAVES: dict[Loss, Leaves] = {"l1": "numbers", "mse": "numbers", "bce": "ones", "ce": "classes"}
_RULES: tuple[GraphMonitor, ...] = ("metric", "loss", "last")


def grow_forest(
    task: GraphTask,
    settings: ForestModel,
    outputs: int,
    seed: int,
    on_epoch: Callable[[int, float], None] | None = None,
) -> GraphFit:
    """A forest grown on the training part; as if it had been trained for one epoch.

    Args:
        task: graphs with fingerprints, their targets and parts.
        settings: of the forest.
        outputs: targets, or classes of one target.
        seed: of what is drawn.
        on_epoch: told when it is grown, with the validation metric.
    """
    assert task.store.fingerprints is not None
    assert task.store.y is not None
    started = time.perf_counter()
    counts, y = task.store.fingerprints.cpu(), task.store.y.double().cpu()
    options = asdict(settings)
    del options["fingerprint"]
    forest = MorganForest.grown(
        counts[task.train].numpy(),
        y[task.train].numpy(),
        _LEAVES[task.loss],
        outputs,
        seed=seed,
        threads=torch.get_num_threads(),
        **options,
    )
    metric = metric_named(task.metric)
    parts = [(forest.outputs(counts[part]), y[part]) for part in (task.train, task.val, task.test)]
    losses = [mean_error(task.loss, *part) for part in parts]
    val, test = (metric(found.numpy(), known.numpy()) for found, known in parts[1:])
    if on_epoch:
        on_epoch(1, val)
    chosen = {rule: Chosen(val, test, 0) for rule in _RULES}
    curves = np.array([[losses[0], losses[1], val if math.isfinite(val) else math.nan]])
    seconds = time.perf_counter() - started
    predicted, measured = parts[2]
    return GraphFit(forest, chosen, curves, seconds, 0.0, predicted.numpy(), measured.numpy())
