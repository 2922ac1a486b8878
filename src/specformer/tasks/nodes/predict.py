r"""Predict for the nodes of a graph with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from specformer.baselines import BASELINES
from specformer.datasets import FeaturePreparation, node_graph
from specformer.datasets.structural_features import STRUCTURAL, with_structural_features
from specformer.errors import ConfigError, RunError
from specformer.files.documents import read_json
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.nn.pretrained import Pretrained
from specformer.tasks.nodes.fit import predict_nodes
from specformer.tasks.nodes.recipe import NodeRecipe
from specformer.tasks.nodes.work import node_operator, node_spectrum
from specformer.tasks.predictions import PredictionRequest, Predictions, csv_text
from specformer.tasks.recipes.settings import build
from specformer.tasks.workplace import Workplace
from specformer.training.runs.folder import FEATURES, RunFolder

#: What a result must say for its models to be used.
_NEEDED = ("model", "settings", "num_features", "classes")


def load_models(run: RunFolder) -> list[Pretrained]:
    """The models of a finished node-classification run."""
    name = run.result(*_NEEDED)["model"]
    kind: type[Pretrained] = BASELINES.get(name, Specformer)
    return [kind.from_pretrained(folder) for folder in run.model_folders()]


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
            found.append(FeaturePreparation.from_json(read_json(path)))
        except (OSError, ValueError, RunError) as error:
            raise RunError(f"{path}: missing or damaged ({error}).") from error
    return found


def predict_graph(run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
    """Predictions for every node: id, prediction, one probability per class.

    Another graph has to have the same features, in any order where both graphs name them.
    """
    result = run.result(*_NEEDED)
    source = request.graph or str(run.config()["source"])
    prepared = load_features(run)
    found = _as_trained_on(node_graph(source, place.data, labels=False), source, result, prepared)
    recipe = _prediction_recipe(result, request)
    models = load_models(run)
    found_spectrum = None
    if result["model"] == "specformer":
        found_spectrum = node_spectrum(found, recipe, place.device, place.cache)
    operator = node_operator(result["model"], found, found_spectrum, place.device)
    chances = predict_nodes(models, found, operator, prepared, place.device)
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


def _prediction_recipe(result: dict[str, Any], request: PredictionRequest) -> NodeRecipe:
    """A run's recipe with the spectrum that predictions are to be made with."""
    trained = _recipe(result)
    given = {"spectrum": request.spectrum, "degree": request.degree}
    changes = {key: value for key, value in given.items() if value is not None}
    if changes and result["model"] != "specformer":
        raise ConfigError(f"--{next(iter(changes))}: {result['model']} does without a spectrum.")
    recipe = build(NodeRecipe, {**asdict(trained), **changes}, "predict")
    if request.degree is not None and recipe.spectrum != "density":
        raise ConfigError(
            f"--degree {request.degree}: add --spectrum density, whose filters have one."
        )
    return recipe
