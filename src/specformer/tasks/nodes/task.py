r"""Learning on the nodes of one graph, as every task is done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from specformer.datasets import Split, make_splits, node_graph
from specformer.graphs import Graph
from specformer.spectrum import Spectrum
from specformer.tasks import estimate
from specformer.tasks.estimate import Estimate
from specformer.tasks.job import Job, Request
from specformer.tasks.nodes.fit import check_parts, learn_nodes
from specformer.tasks.nodes.forms import with_best_form
from specformer.tasks.nodes.predict import predict_graph
from specformer.tasks.nodes.recipe import (
    NODE_MODELS,
    NodeRecipe,
    node_recipe,
    refuse_idle_settings,
)
from specformer.tasks.nodes.spectral_distance import quantiles
from specformer.tasks.nodes.trials import NodeTrials
from specformer.tasks.nodes.work import NodeWork, node_features, node_spectrum
from specformer.tasks.overview import of_nodes
from specformer.tasks.predictions import PredictionRequest, Predictions
from specformer.tasks.recipes.settings import build
from specformer.tasks.source import Kind
from specformer.tasks.task import Outcome, Task
from specformer.tasks.workplace import Workplace
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.runs.folder import RunFolder

logger = logging.getLogger(__name__)


class NodeLearning(Task[NodeWork]):
    """Classes, labels or numbers of a graph's nodes."""

    kind: ClassVar[Kind] = "nodes"
    noun, plural = "a single graph", "single graphs"
    models = NODE_MODELS
    runs = None
    options = frozenset(
        {"task", "metric", "spectrum", "degree", "label", "id", "source", "target", "weight"}
    ) | {"features", "split-column"}

    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:
        unused = {None: (), "specformer": ("baseline",)}.get(model, ("model",))
        return NodeRecipe, unused

    def resolve(self, request: Request) -> tuple[str, NodeRecipe]:
        model, changes = request.model, request.changes
        chosen, recipe = node_recipe(
            request.recipe, request.source, changes, model, request.learned
        )
        refuse_idle_settings(model, recipe, changes)
        return chosen, recipe

    def read_recipe(self, model: str, settings: Mapping[str, Any], where: str) -> NodeRecipe:  # noqa: ARG002
        return build(NodeRecipe, settings, where)

    def load(self, job: Job, place: Workplace) -> NodeWork:
        graph = node_graph(job.source, place.data, job.columns, task=job.settings.task)
        return self.work_on(job, graph)

    def work_on(self, job: Job, graph: Graph, splits: Sequence[Split] | None = None) -> NodeWork:
        """The work on a graph with labels as they are learned; ``splits`` if not the recipe's."""
        recipe = job.settings.settled(graph)
        if splits is None:
            splits = make_splits(graph, recipe.split, job.runs, job.seed)
        check_parts(graph, recipe, splits)
        _warn_of_untested(graph, splits, recipe.split)
        prepared = node_features(graph, splits, recipe)  # refused before a long decomposition
        return NodeWork(graph, splits, job.model, recipe, job.seed, prepared=prepared)

    def load_beside(self, work: NodeWork, job: Job, place: Workplace) -> NodeWork:
        graph, splits = work.graph, work.splits
        recipe = job.settings.settled(graph)
        if (recipe.split, recipe.task) != (work.recipe.split, work.recipe.task):
            return self.load(job, place)
        check_parts(graph, recipe, splits)
        prepared = node_features(graph, splits, recipe)
        return NodeWork(graph, splits, job.model, recipe, job.seed, prepared=prepared)

    def overview(self, work: NodeWork) -> dict[str, Any]:
        return of_nodes(work.graph, work.recipe, work.splits)

    def estimate(self, work: NodeWork, device: torch.device) -> Estimate:
        return estimate.of_nodes(work.graph, work.recipe, work.model, len(work.splits), device)

    def with_spectra(self, work: NodeWork, place: Workplace) -> NodeWork:
        if work.model != "specformer":
            return work
        with place.progress.stage(f"{work.graph.name}: spectrum", 1, ""):
            spectrum = node_spectrum(work.graph, work.recipe, place.device, place.cache)
        return replace(work, spectrum=spectrum)

    def fit(self, work: NodeWork, place: Workplace, checkpoint: Path | None) -> Outcome:
        chosen, choice = with_best_form(work, place, checkpoint)
        outcome = learn_nodes(chosen, place, checkpoint)
        told: dict[str, Any] = {"form": chosen.recipe.form} if work.recipe.forms else {}
        if choice is not None:
            told["forms_tried"] = dict(choice.tried)
            words = choice.told(metric_named(str(chosen.recipe.metric)).label)
            told["description"] = f"{outcome.row['description']}. Specformer {words}."
        return replace(outcome, row={**outcome.row, **told})

    def summarise(self, work: NodeWork, outcome: Outcome) -> dict[str, Any]:
        graph, row, recipe = work.graph, outcome.row, work.recipe
        if recipe.forms:
            recipe = recipe.taking(row["form"])
        rule, words = f"by_{recipe.metric}", "Classifying" if graph.num_classes else "Learning on"
        of = "" if recipe.monitor == "loss" else f"_{rule}"
        kept = {"test": row[f"test{of}"], "val": row[f"val{of}"]}
        result: dict[str, Any] = {
            "title": f"{words} the nodes of {graph.name}",
            "dataset": graph.name,
            "split": recipe.split,
            "runs": len(work.splits),
            "task": recipe.task,
            "metric": recipe.metric,
            **kept,  # of the models that are kept; then of both rules
            "test_by_loss": row["test"],
            f"test_{rule}": row[f"test_{rule}"],
            "settings": asdict(recipe),
            **{key: row[key] for key in ("classes", "targets", "form") if key in row},
            "num_features": graph.num_features,
            "nodes": [{**row, **kept}],
        }
        if graph.feature_names is not None:
            result["feature_names"] = list(graph.feature_names)
        if work.spectrum is not None:
            result["spectra"] = [{"name": graph.name, **work.spectrum.summary()}]
            if not isinstance(work.spectrum, Spectrum) or work.spectrum.is_complete:
                result["quantiles"] = quantiles(work.spectrum)
        return result

    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        return predict_graph(run, request, place)

    def trials(self, job: Job, place: Workplace) -> NodeTrials:
        return NodeTrials(job, place)


def _warn_of_untested(graph: Graph, splits: Sequence[Split], protocol: str) -> None:
    """Name the classes that no split tests: the paper's rule trains on all nodes of a rare one."""
    if graph.num_targets:
        return
    assert graph.y is not None
    tested = np.logical_or.reduce([split.test for split in splits])
    untested = np.setdiff1d(graph.y[graph.y >= 0], graph.y[tested])
    if untested.size:
        names = graph.class_names or range(graph.num_classes)
        drawn = protocol == "random-60-20-20"
        logger.warning(
            "%s: no test node is of %s, so that the test says nothing of it%s",
            graph.name,
            " or ".join(repr(str(names[label])) for label in untested),
            "; a rare class trains whole, unless masks of your own (split=official) say otherwise"
            if drawn
            else "",
        )
