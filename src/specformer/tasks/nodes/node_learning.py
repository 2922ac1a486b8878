r"""The task of learning on the nodes of one graph, and a search of its settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from specformer.baselines import Propagation
from specformer.datasets import Split, make_splits, node_graph
from specformer.datasets.features import preparation_lines
from specformer.datasets.parts import is_in_parts
from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum, Spectrum
from specformer.tasks import estimate
from specformer.tasks.estimate import Estimate
from specformer.tasks.job import Job, Kind, Request, Workplace
from specformer.tasks.nodes.node_fit import fit_nodes_of, learn_nodes, with_best_form
from specformer.tasks.nodes.node_predict import predict_nodes, quantiles
from specformer.tasks.nodes.node_recipe import (
    NODE_MODELS,
    NodeRecipe,
    node_model,
    node_recipe,
    refuse_idle_settings,
)
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.overview import of_nodes
from specformer.tasks.task import (
    Measured,
    Outcome,
    PredictionRequest,
    Predictions,
    Task,
    Trials,
    check_parts,
    parameter_count,
)
from specformer.training.engine.distributed import Share
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.loops.nodes import FullBatchTask
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

logger = logging.getLogger(__name__)


class NodeLearning(Task[NodeWork]):
    """Classes, labels or numbers of a graph's nodes."""

    kind: ClassVar[Kind] = "nodes"
    noun, plural = "a single graph", "single graphs"
    models = NODE_MODELS
    runs: ClassVar[int | None] = None
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

    def refuse_workers(self, job: Job) -> None:
        if job.model != "specformer":
            raise ConfigError(
                f"{job.source}: {job.model} needs all nodes in one process; of the models of "
                "single graphs, only specformer trains in several."
            )

    def spectra_together(self, job: Job) -> bool:
        return bool(job.settings.spectrum == "density" or self.loads_together(job))

    def loads_together(self, job: Job) -> bool:
        return is_in_parts(job.source)

    def load(self, job: Job, place: Workplace) -> NodeWork:
        graph = node_graph(
            job.source,
            place.data,
            job.columns,
            task=job.settings.task,
            share=partial(Share, place.workers),
            device=place.device,
        )
        return self.work_on(job, graph)

    def work_on(self, job: Job, graph: Graph, splits: Sequence[Split] | None = None) -> NodeWork:
        """The work on a graph with prepared labels; ``splits`` if not the recipe's."""
        recipe = job.settings.settled(graph)
        if splits is None:
            splits = make_splits(graph, recipe.split, job.runs, job.seed)
        else:
            recipe = replace(recipe, split="given")
        work = _checked(job, graph, recipe, splits)
        warn_of_untested(graph, splits, recipe.split)
        return work

    def load_beside(self, work: NodeWork, job: Job, place: Workplace) -> NodeWork:
        recipe = job.settings.settled(work.graph)
        if (recipe.split, recipe.task) != (work.recipe.split, work.recipe.task):
            return self.load(job, place)
        return _checked(job, work.graph, recipe, work.splits)

    def resplit(self, work: NodeWork, count: int) -> Sequence[Split]:
        """That many splits of the work's graph."""
        return make_splits(work.graph, work.recipe.split, count, work.seed)

    def overview(self, work: NodeWork) -> dict[str, Any]:
        found = of_nodes(work.graph, work.recipe, work.splits)
        return found | {"prepared": preparation_lines(work.prepared[0])} if work.prepared else found

    def estimate(self, work: NodeWork, device: torch.device) -> Estimate:
        return estimate.of_nodes(work.graph, work.recipe, work.model, len(work.splits), device)

    def with_spectra(
        self, work: NodeWork, place: Workplace, beside: NodeWork | None = None
    ) -> NodeWork:
        if work.model != "specformer":
            return work
        if beside and beside.spectrum and beside.recipe.spectrum_key == work.recipe.spectrum_key:
            return replace(work, spectrum=beside.spectrum)
        return replace(work, spectrum=work.decomposed(place))

    def fit(
        self, work: NodeWork, place: Workplace, checkpoint: Path | None, label: str | None = None
    ) -> Outcome:
        chosen, choice = with_best_form(work, place, checkpoint)
        outcome = learn_nodes(chosen, place, checkpoint, label)
        told: dict[str, Any] = {"form": chosen.recipe.form} if work.recipe.forms else {}
        if choice is not None:
            told["forms_tried"] = dict(choice.tried)
            words = choice.told(metric_named(str(chosen.recipe.metric)).label)
            told["description"] = f"{outcome.row['description']}. Specformer {words}."
        return replace(outcome, row={**outcome.row, **told}, more=self.input_of(chosen))

    def summarise(self, work: NodeWork, outcome: Outcome) -> dict[str, Any]:
        graph, row, recipe = work.graph, outcome.row, work.recipe
        if recipe.forms:
            recipe = recipe.taking(row["form"])
        rule, words = f"by_{recipe.metric}", "Classifying" if graph.num_classes else "Learning on"
        of = "" if recipe.monitor == "loss" else f"_{rule}"
        kept = {"test": row[f"test{of}"], "val": row[f"val{of}"]}
        return {
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
            **outcome.more,
            "nodes": [{**row, **kept}],
        }

    def input_of(self, work: NodeWork) -> dict[str, Any]:
        """The keys of a result about the features and the spectrum that models take."""
        found: dict[str, Any] = {"num_features": work.graph.num_features}
        if work.graph.feature_names is not None:
            found["feature_names"] = list(work.graph.feature_names)
        if work.spectrum is not None:
            found["spectra"] = [{"name": work.graph.name, **work.spectrum.summary()}]
            if not isinstance(work.spectrum, Spectrum) or work.spectrum.is_complete:
                found["quantiles"] = quantiles(work.spectrum)
        return found

    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        return predict_nodes(run, request, place)

    def trials(self, job: Job, place: Workplace) -> NodeTrials:
        return NodeTrials(self, job, place)


def _checked(job: Job, graph: Graph, recipe: NodeRecipe, splits: Sequence[Split]) -> NodeWork:
    """The work, checked before a long decomposition."""
    check_parts(graph.name, graph.y, recipe.metric, splits, "nodes")
    work = NodeWork(graph, splits, job.model, recipe, job.seed)
    return replace(work, prepared=work.features)


def warn_of_untested(graph: Graph, splits: Sequence[Split], protocol: str) -> None:
    """Warn of classes that no split tests: the paper's rule only trains on rare ones."""
    if graph.num_targets:
        return
    assert graph.y is not None
    tested = np.logical_or.reduce([split.test for split in splits])
    untested = np.setdiff1d(graph.y[graph.y >= 0], graph.y[tested])
    if untested.size:
        names = graph.class_names or range(graph.num_classes)
        told = " or ".join(repr(str(names[label])) for label in untested)
        hint = ""
        if protocol == "random-60-20-20":
            hint = "; all nodes of a rare class train, unless you bring masks (split=official)"
        logger.warning(
            "%s: no test node is of class %s, so that it is not tested%s", graph.name, told, hint
        )


class NodeTrials(Trials):
    """One model on the nodes of one graph; all splits of a trial train at once."""

    space_file, window, splits = "node_search.yaml", 20, 3

    def __init__(self, learning: NodeLearning, job: Job, place: Workplace) -> None:
        super().__init__(job, place)
        self._learning = learning
        first = replace(super().recipe(self.assignments), forms={})
        #: The job with its own settings on all splits; trials change some of them.
        self.work = learning.load(replace(job, settings=first, runs=None), place)
        self.name, self.metric = self.work.graph.name, str(self.work.recipe.metric)
        self._tasks: dict[tuple[str, int], FullBatchTask] = {}
        self._operators: dict[str, AnySpectrum | Propagation] = {}
        assert self.work.prepared is not None
        if self.work.prepared[0].scaling == "columns":  # raw columns are always prepared
            self.space.pop("features", None)

    def space_of(self, job: Job) -> str:
        deep = job.model == "specformer" and job.settings.model.form == "deep"
        return "specformer-deep" if deep else job.model

    def recipe(self, changes: Sequence[str]) -> NodeRecipe:
        """The recipe with these changes and no choice of forms, settled for the graph."""
        recipe: NodeRecipe = replace(super().recipe(changes), forms={})
        return recipe.settled(self.work.graph)

    @property
    def runs(self) -> int:
        """Ten, or those that a file holds."""
        return len(self.work.splits)

    def size(self, recipe: NodeRecipe) -> int:
        width = self._task(recipe, 1).in_channels
        return parameter_count(node_model(self.model, recipe, width, self.work.outputs))

    def measure(self, recipe: NodeRecipe, splits: int) -> Measured:
        inputs = self._operator(recipe), self._task(recipe, splits)
        work = self._with(recipe, splits)
        fit = fit_nodes_of(work, replace(self.place, progress=Silent()), None, "", inputs).fit
        _, loss, figure = fit.curves.unbind(dim=-1)
        counted = figure.where(~loss.isnan(), torch.nan)  # else that of a constant guess
        return self.judged(counted, fit.epochs, fit.kept.val.tolist())

    def _with(self, recipe: NodeRecipe, splits: int) -> NodeWork:
        parts = self._learning.resplit(self.work, splits)
        return replace(self.work, recipe=recipe, splits=parts, prepared=None)

    def _task(self, recipe: NodeRecipe, splits: int) -> FullBatchTask:
        key = recipe.features, splits
        if key not in self._tasks:
            self._tasks[key] = self._with(recipe, splits).task(self.place.device)
        return self._tasks[key]

    def _operator(self, recipe: NodeRecipe) -> AnySpectrum | Propagation:
        """Computed once for all trials: it can take longer than a trial."""
        key = recipe.spectrum_key if self.model == "specformer" else "propagation"
        if key not in self._operators:
            place = replace(self.place, progress=Silent())
            work = self._learning.with_spectra(replace(self.work, recipe=recipe), place)
            self._operators[key] = work.operator(place.device)
        return self._operators[key]
