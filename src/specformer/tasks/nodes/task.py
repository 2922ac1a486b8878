r"""Learning on the nodes of one graph, as every task is done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from specformer.datasets import Split, make_splits, node_graph
from specformer.graphs import Graph
from specformer.tasks.job import Job, Request
from specformer.tasks.nodes.fit import classify_nodes
from specformer.tasks.nodes.predict import predict_graph
from specformer.tasks.nodes.recipe import (
    NODE_MODELS,
    NodeRecipe,
    node_recipe,
    refuse_idle_settings,
)
from specformer.tasks.nodes.trials import NodeTrials
from specformer.tasks.nodes.work import NodeWork, node_features, node_spectrum
from specformer.tasks.overview import of_nodes
from specformer.tasks.predictions import PredictionRequest, Predictions
from specformer.tasks.recipes.settings import build
from specformer.tasks.source import Kind
from specformer.tasks.task import Outcome, Task
from specformer.tasks.workplace import Workplace
from specformer.training.runs.folder import RunFolder

logger = logging.getLogger(__name__)


class NodeLearning(Task[NodeWork]):
    """Classes of a graph's nodes."""

    kind: ClassVar[Kind] = "nodes"
    noun, plural = "a single graph", "single graphs"
    models = NODE_MODELS
    runs = None
    options = frozenset({"spectrum", "degree"})

    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:
        unused = {None: (), "specformer": ("baseline",)}.get(model, ("model",))
        return NodeRecipe, unused

    def resolve(self, request: Request) -> tuple[str, NodeRecipe]:
        model, changes = request.model, request.changes
        chosen, recipe = node_recipe(request.recipe, request.source, changes, model)
        refuse_idle_settings(model, recipe, changes)
        return chosen, recipe

    def read_recipe(self, model: str, settings: Mapping[str, Any], where: str) -> NodeRecipe:  # noqa: ARG002
        return build(NodeRecipe, settings, where)

    def load(self, job: Job, place: Workplace) -> NodeWork:
        graph = node_graph(job.source, place.data)
        recipe = job.settings.settled(graph)
        splits = make_splits(graph, recipe.split, job.runs, job.seed)
        _warn_of_untested(graph, splits, recipe.split)
        prepared = node_features(graph, splits, recipe)  # refused before a long decomposition
        return NodeWork(graph, splits, job.model, recipe, job.seed, prepared=prepared)

    def overview(self, work: NodeWork) -> dict[str, Any]:
        return of_nodes(work.graph, work.splits, work.recipe.split)

    def with_spectra(self, work: NodeWork, place: Workplace) -> NodeWork:
        if work.model != "specformer":
            return work
        with place.progress.stage(f"{work.graph.name}: spectrum", 1, ""):
            spectrum = node_spectrum(work.graph, work.recipe, place.device, place.cache)
        return replace(work, spectrum=spectrum)

    def fit(self, work: NodeWork, place: Workplace, checkpoint: Path | None) -> Outcome:
        return classify_nodes(work, place, checkpoint)

    def summarise(self, work: NodeWork, outcome: Outcome) -> dict[str, Any]:
        graph, row, recipe = work.graph, outcome.row, work.recipe
        by_loss = recipe.monitor == "loss"
        kept = {
            "test": row["test"] if by_loss else row["test_by_accuracy"],
            "val": row["val"] if by_loss else row["val_by_accuracy"],
        }
        result = {
            "title": f"Classifying the nodes of {graph.name}",
            "dataset": graph.name,
            "split": recipe.split,
            "runs": len(work.splits),
            "metric": "accuracy",
            **kept,  # of the models that are kept; then of both rules
            "test_by_loss": row["test"],
            "test_by_accuracy": row["test_by_accuracy"],
            "settings": asdict(recipe),
            "classes": row["classes"],
            "num_features": graph.num_features,
            "nodes": [{**row, **kept}],
        }
        if graph.feature_names is not None:
            result["feature_names"] = list(graph.feature_names)
        if work.spectrum is not None:
            result["spectra"] = [{"name": graph.name, **work.spectrum.summary()}]
        return result

    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        return predict_graph(run, request, place)

    def trials(self, job: Job, place: Workplace) -> NodeTrials:
        return NodeTrials(job, place)


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
