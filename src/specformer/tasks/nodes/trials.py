r"""Settings for the nodes of one graph, as a search tries them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from specformer.baselines import Propagation
from specformer.datasets import FeaturePreparation, Split, make_splits, node_graph
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum
from specformer.tasks.job import Job
from specformer.tasks.nodes.fit import check_parts
from specformer.tasks.nodes.recipe import NodeRecipe, node_model, num_outputs
from specformer.tasks.nodes.work import (
    fit_task,
    fresh_models,
    node_landmarks,
    node_operator,
    node_spectrum,
    node_task,
)
from specformer.tasks.search import Measured, Trials, sustained
from specformer.tasks.workplace import Workplace
from specformer.training.engine.precision import matmul_precision
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.summaries import summary
from specformer.training.loops.nodes import NodeFit, NodeTask

#: Neighbouring epochs whose mean validation figure counts.
_SUSTAINED = 20


class NodeTrials(Trials):
    """One model on the nodes of one graph, a :class:`~specformer.tasks.search.Trials`.

    A score is the :func:`~specformer.tasks.search.sustained` validation figure, the mean
    over splits; test nodes are not looked at.
    """

    space_file, monitor = "node_search.yaml", "metric"
    splits = 3

    def __init__(self, job: Job, place: Workplace) -> None:
        super().__init__(job, place)
        self.graph: Graph = node_graph(job.source, place.data, job.columns, task=job.settings.task)
        first = self.recipe(self.assignments)
        self.name, self.metric = self.graph.name, str(first.metric)
        self.lower = metric_named(self.metric).lower
        check_parts(self.graph, first, self._splits(None))
        self._tasks: dict[tuple[str, int], NodeTask] = {}
        self._operators: dict[str, AnySpectrum | Propagation] = {}
        kept = FeaturePreparation.fit(self.graph, self._splits(1)[0].train)
        if kept.scaling == "columns":  # raw columns are always prepared
            self.space.pop("features", None)

    def _splits(self, count: int | None) -> list[Split]:
        protocol = self.recipe(self.assignments).split
        return make_splits(self.graph, protocol, count, self.seed)

    def space_of(self, job: Job) -> str:
        deep = job.model == "specformer" and job.settings.model.form == "deep"
        return "specformer-deep" if deep else job.model

    def recipe(self, changes: Sequence[str]) -> NodeRecipe:
        """The recipe with these changes and no choice of forms, settled for the graph."""
        recipe: NodeRecipe = replace(super().recipe(changes), forms={})
        return recipe.settled(self.graph)

    @property
    def runs(self) -> int:
        """Ten, or those that a file holds."""
        return len(self._splits(None))

    def size(self, recipe: NodeRecipe) -> int:
        """Parameters of a recipe's model."""
        width = self._task(recipe, 1).in_channels
        fresh = node_model(self.model, recipe, width, num_outputs(self.graph))
        return sum(parameter.numel() for parameter in fresh.parameters())

    def measure(self, recipe: NodeRecipe, splits: int) -> Measured:
        """One setting, trained on every split at once."""
        fit = self._fit(recipe, splits)
        chosen = fit.by_loss if recipe.monitor == "loss" else fit.by_metric
        _, loss, figure = fit.curves.unbind(dim=-1)
        counted = figure.where(~loss.isnan(), torch.nan)  # else that of a constant guess
        score = float(sustained(counted, fit.epochs, _SUSTAINED, lower=self.lower).mean())
        return Measured(
            score=score if math.isfinite(score) else None,
            val=summary(chosen.val.tolist()),
            epochs=float(fit.epochs.double().mean()),
        )

    def _fit(self, recipe: NodeRecipe, splits: int) -> NodeFit:
        task, operator = self._task(recipe, splits), self._operator(recipe)
        models = fresh_models(self.model, recipe, self.graph, splits, self.seed, task.in_channels)
        with matmul_precision(recipe.precision, self.place.device):
            return fit_task(
                models,
                task,
                operator,
                recipe,
                landmarks=node_landmarks(operator, recipe),
                cache=self.place.cache,
            )

    def _task(self, recipe: NodeRecipe, splits: int) -> NodeTask:
        key = recipe.features, splits
        if key not in self._tasks:
            parts = self._splits(splits)
            self._tasks[key] = node_task(self.graph, parts, recipe, self.place.device, self.model)
        return self._tasks[key]

    def _operator(self, recipe: NodeRecipe) -> AnySpectrum | Propagation:
        """Made once for all trials: distances and Ritz pairs take longer than some trials do."""
        ours = self.model == "specformer"
        key = recipe.spectrum_key if ours else "propagation"
        if key not in self._operators:
            spectrum = (
                node_spectrum(self.graph, recipe, self.place.device, self.place.cache)
                if ours
                else None
            )
            self._operators[key] = node_operator(
                self.model, self.graph, spectrum, self.place.device
            )
        return self._operators[key]
