r"""Train on a graph of one's choice: the job behind ``specformer train`` for nodes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from specformer.datasets import FeaturePreparation, Split, make_splits, node_graph
from specformer.errors import check_known
from specformer.experiments.node_recipe import NODE_MODELS, node_recipe
from specformer.experiments.node_run import node_features, node_spectrum
from specformer.experiments.nodes import NodeOutcome, classify_nodes
from specformer.files import replacing, write_json
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.nn.pretrained import WEIGHTS
from specformer.training.progress import Progress
from specformer.training.run_folder import FEATURES, RunFolder

logger = logging.getLogger(__name__)


def train_nodes(
    source: str,
    *,
    model: str,
    recipe_name: str | None,
    assignments: Sequence[str] = (),
    runs: int | None = None,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    seed: int = 0,
    progress: Progress,
    begin: Callable[[], Path | None] = lambda: None,
) -> tuple[dict[str, Any], NodeOutcome]:
    """Train one model a split; returns the result, with ``train``'s JSON keys, and the outcome.

    ``runs`` is as ``count`` of :func:`specformer.datasets.make_splits`. ``begin`` is called once
    the input has been found good; it may name a checkpoint file.
    """
    check_known("model", NODE_MODELS, model)
    chosen, asked = node_recipe(recipe_name, source, assignments, model)
    graph = node_graph(source, data)
    recipe = asked.settled(graph)
    splits = make_splits(graph, recipe.split, runs, seed)
    _warn_of_untested(graph, splits, recipe.split)
    started = time.perf_counter()
    prepared = node_features(graph, splits, recipe)  # refused before a long decomposition
    spectrum = node_spectrum(graph, recipe, device, cache) if model == "specformer" else None
    outcome = classify_nodes(
        graph,
        spectrum,
        splits,
        model,
        recipe,
        device=device,
        seed=seed,
        progress=progress,
        prepared=prepared,
        cache=cache,
        checkpoint=begin(),
    )
    row, by_loss = outcome.row, recipe.monitor == "loss"
    kept = {
        "test": row["test"] if by_loss else row["test_by_accuracy"],
        "val": row["val"] if by_loss else row["val_by_accuracy"],
    }
    result = {
        "title": f"Classifying the nodes of {graph.name}",
        "dataset": graph.name,
        "model": model,
        "recipe": chosen,
        "split": recipe.split,
        "runs": len(splits),
        "metric": "accuracy",
        **kept,  # of the models that are kept; then of both rules
        "test_by_loss": row["test"],
        "test_by_accuracy": row["test_by_accuracy"],
        "parameters": row["parameters"],
        "seconds": time.perf_counter() - started + outcome.seconds_before,
        "settings": asdict(asked),
        "classes": row["classes"],
        "num_features": graph.num_features,
        "nodes": [{**row, **kept, "recipe": chosen}],
    }
    if graph.feature_names is not None:
        result["feature_names"] = list(graph.feature_names)
    if spectrum is not None:
        result["spectra"] = [{"name": graph.name, **spectrum.summary()}]
    return result, outcome


def _warn_of_untested(graph: Graph, splits: Sequence[Split], protocol: str) -> None:
    """Name the classes that no split tests: the paper's rule trains on all nodes of a rare one."""
    assert graph.y is not None
    tested = np.logical_or.reduce([split.test for split in splits])
    untested = np.setdiff1d(graph.y[graph.y >= 0], graph.y[tested])
    if untested.size:
        names = graph.class_names or range(graph.num_classes)
        drawn = protocol == "random-60-20-20"
        logger.warning(
            "%s: no test node is of %s, so that accuracy says nothing of it%s",
            graph.name,
            " or ".join(repr(str(names[label])) for label in untested),
            "; a rare class trains whole, unless masks of your own (split=official) say otherwise"
            if drawn
            else "",
        )


def save_features(run: RunFolder, prepared: Sequence[FeaturePreparation]) -> None:
    """Keep how every run's features are prepared beside its model."""
    for number, own in enumerate(prepared):
        write_json(run.model_folder(number) / FEATURES, own.to_json())


def save_models(run: RunFolder, models: Sequence[nn.Module]) -> None:
    """Keep every run's model in ``model/NNN``."""
    for number, model in enumerate(models):
        folder = run.model_folder(number)
        if isinstance(model, Specformer):
            model.save_pretrained(folder)
        else:
            with replacing(folder / WEIGHTS) as part:
                save_file({key: value.cpu() for key, value in model.state_dict().items()}, part)
