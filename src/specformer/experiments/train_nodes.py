r"""Train on a graph of one's choice, and predict with what was trained."""

from __future__ import annotations

import csv
import io
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from specformer.datasets import Split, make_splits, node_graph
from specformer.errors import ConfigError, RunError, check_known
from specformer.experiments.node_recipe import NODE_MODELS, NodeRecipe, node_model, node_recipe
from specformer.experiments.nodes import (
    NodeOutcome,
    classify_nodes,
    node_operator,
    node_spectrum,
    predict_nodes,
)
from specformer.files import replacing
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.nn.pretrained import WEIGHTS
from specformer.training.progress import Progress
from specformer.training.recipe import build
from specformer.training.run_folder import RunFolder

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
    chosen, recipe = node_recipe(recipe_name, source, assignments, model)
    graph = node_graph(source, data)
    splits = make_splits(graph, recipe.split, runs, seed)
    _warn_of_untested(graph, splits, recipe.split)
    started = time.perf_counter()
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
        "seconds": time.perf_counter() - started,
        "settings": asdict(recipe),
        "classes": row["classes"],
        "num_features": graph.num_features,
        "nodes": [{**row, **kept, "recipe": chosen}],
    }
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


def save_models(run: RunFolder, models: Sequence[nn.Module]) -> None:
    """Keep every run's model in ``model/NNN``."""
    for number, model in enumerate(models):
        folder = run.model_folder(number)
        if isinstance(model, Specformer):
            model.save_pretrained(folder)
        else:
            with replacing(folder / WEIGHTS) as part:
                save_file({key: value.cpu() for key, value in model.state_dict().items()}, part)


def load_models(run: RunFolder) -> list[nn.Module]:
    """The models of a finished node-classification run."""
    result = run.result()
    recipe = _recipe(result)
    models: list[nn.Module] = []
    for folder in run.model_folders():
        if result["model"] == "specformer":
            models.append(Specformer.from_pretrained(folder))
            continue
        model = node_model(result["model"], recipe, result["num_features"], len(result["classes"]))
        try:
            model.load_state_dict(load_file(folder / WEIGHTS))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise RunError(f"{folder / WEIGHTS}: missing or damaged ({error}).") from error
        models.append(model.eval())
    return models


def predict(
    run: RunFolder,
    *,
    graph: str | None = None,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    spectrum: str | None = None,
    degree: int | None = None,
) -> tuple[str, int]:
    """Predictions as CSV text (id, prediction, a probability a class) and their number.

    ``graph`` names another graph with the same features; without it, the one trained on.
    ``spectrum`` and ``degree`` replace those of the run's recipe: a model that was trained with a
    decomposition can predict without one.
    """
    result = run.result()
    if result.get("kind") != "nodes":
        raise RunError(f"{run.path}: not a node-classification run, nothing to predict with.")
    source = graph or str(run.config()["source"])
    found = node_graph(source, data, labels=False)
    if found.num_features != result["num_features"]:
        raise RunError(
            f"{source}: a node has {found.num_features} features where the model was trained on "
            f"{result['num_features']}."
        )
    recipe = _prediction_recipe(result, spectrum, degree)
    models = load_models(run)
    found_spectrum = None
    if result["model"] == "specformer":
        found_spectrum = node_spectrum(found, recipe, device, cache)
    operator = node_operator(result["model"], found, found_spectrum, device)
    chances = predict_nodes(models, found, operator, recipe, device)
    names = result["classes"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "prediction", *(f"p({name})" for name in names)])
    ids = found.node_ids or tuple(str(node) for node in range(found.num_nodes))
    for node, row in zip(ids, chances.tolist(), strict=True):
        best = max(range(len(row)), key=row.__getitem__)
        writer.writerow([node, names[best], *(f"{value:.6f}" for value in row)])
    return text.getvalue(), found.num_nodes


def _recipe(result: dict[str, Any]) -> NodeRecipe:
    settings = {**result["settings"], "batch_size": None}  # all nodes are predicted at once
    return build(NodeRecipe, settings, "result.json: settings")


def _prediction_recipe(
    result: dict[str, Any], spectrum: str | None, degree: int | None
) -> NodeRecipe:
    """A run's recipe with the spectrum that predictions are to be made with."""
    trained = _recipe(result)
    given = {"spectrum": spectrum, "degree": degree}
    changes = {key: value for key, value in given.items() if value is not None}
    if changes and result["model"] != "specformer":
        raise ConfigError(f"--{next(iter(changes))}: {result['model']} does without a spectrum.")
    recipe = build(NodeRecipe, {**asdict(trained), **changes}, "predict")
    if degree is not None and recipe.spectrum != "density":
        raise ConfigError(f"--degree {degree}: add --spectrum density, whose filters have one.")
    return recipe
