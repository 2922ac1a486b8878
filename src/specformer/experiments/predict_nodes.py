r"""Predict for the nodes of a graph with a trained model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from specformer.datasets import FeaturePreparation, node_graph
from specformer.datasets.structural_features import STRUCTURAL, with_structural_features
from specformer.errors import ConfigError, RunError
from specformer.experiments.node_recipe import NodeRecipe, node_model
from specformer.experiments.node_run import node_operator, node_spectrum
from specformer.experiments.nodes import predict_nodes
from specformer.experiments.predictions import Predictions, csv_text
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.nn.pretrained import WEIGHTS
from specformer.training.recipe import build
from specformer.training.run_folder import FEATURES, RunFolder

#: What a result must say for its models to be used.
_NEEDED = ("model", "settings", "num_features", "classes")


def load_models(run: RunFolder) -> list[nn.Module]:
    """The models of a finished node-classification run."""
    result = run.result(*_NEEDED)
    recipe = _recipe(result)
    models: list[nn.Module] = []
    for folder in run.model_folders():
        if result["model"] == "specformer":
            models.append(Specformer.from_pretrained(folder))
            continue
        width = load_features(run)[0].width
        model = node_model(result["model"], recipe, width, len(result["classes"]))
        try:
            model.load_state_dict(load_file(folder / WEIGHTS))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise RunError(f"{folder / WEIGHTS}: missing or damaged ({error}).") from error
        models.append(model.eval())
    return models


def load_features(run: RunFolder) -> list[FeaturePreparation]:
    """How each run's features were prepared; of older runs, what their recipe says."""
    result = run.result(*_NEEDED)
    recipe, found = _recipe(result), []
    for folder in run.model_folders():
        path = folder / FEATURES
        if not path.exists() and recipe.features in ("rows", "none"):
            found.append(FeaturePreparation(recipe.features, result["num_features"]))
            continue
        try:
            found.append(FeaturePreparation.from_json(json.loads(path.read_text("utf-8"))))
        except (OSError, ValueError, RunError) as error:
            raise RunError(f"{path}: missing or damaged ({error}).") from error
    return found


def predict(
    run: RunFolder,
    *,
    graph: str | None = None,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    spectrum: str | None = None,
    degree: int | None = None,
) -> Predictions:
    """Predictions for every node: id, prediction, a probability a class.

    ``graph`` names another graph with the same features, in any order where both graphs name them;
    without it, the one trained on.
    ``spectrum`` and ``degree`` replace those of the run's recipe: a model that was trained with a
    decomposition can predict without one.
    """
    if run.result().get("kind") != "nodes":
        raise RunError(f"{run.path}: not a node-classification run, nothing to predict with.")
    result = run.result(*_NEEDED)
    source = graph or str(run.config()["source"])
    prepared = load_features(run)
    found = _as_trained_on(node_graph(source, data, labels=False), source, result, prepared)
    recipe = _prediction_recipe(result, spectrum, degree)
    models = load_models(run)
    found_spectrum = None
    if result["model"] == "specformer":
        found_spectrum = node_spectrum(found, recipe, device, cache)
    operator = node_operator(result["model"], found, found_spectrum, device)
    chances = predict_nodes(models, found, operator, prepared, device)
    names = result["classes"]
    ids = found.node_ids or tuple(str(node) for node in range(found.num_nodes))
    rows = []
    for node, row in zip(ids, chances.tolist(), strict=True):
        best = max(range(len(row)), key=row.__getitem__)
        rows.append([node, names[best], *(f"{value:.6f}" for value in row)])
    header = ["id", "prediction", *(f"p({name})" for name in names)]
    return Predictions(csv_text(header, rows), len(rows))


def _as_trained_on(
    graph: Graph, source: str, result: dict[str, Any], prepared: Sequence[FeaturePreparation]
) -> Graph:
    """The graph with its features under the names, and in the order, that the model knows."""
    names: Sequence[str] | None = result.get("feature_names")
    known = None if names is None else tuple(names)
    if known == STRUCTURAL and graph.feature_names != STRUCTURAL:
        graph = with_structural_features(graph)
    elif known != STRUCTURAL and graph.feature_names == STRUCTURAL:
        raise RunError(f"{source}: a node has no features, which the model was trained on.")
    if known is None or graph.feature_names is None:
        if graph.num_features != result["num_features"]:
            raise RunError(
                f"{source}: a node has {graph.num_features} features where the model was trained "
                f"on {result['num_features']}."
            )
        return replace(graph, feature_names=known, feature_words=None)
    needed = {name for each in prepared for name in each.needed} or set(known)
    wanted = [name for name in known if name in needed]
    places = {name: place for place, name in enumerate(graph.feature_names)}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise RunError(
            f"{source}: a node has no feature {missing[0]!r}, which the model was trained on."
        )
    assert graph.x is not None
    columns = [places[name] for name in wanted]
    words = {name: own for name, own in (graph.feature_words or {}).items() if name in needed}
    return replace(
        graph, x=graph.x[:, columns], feature_names=tuple(wanted), feature_words=words or None
    )


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
