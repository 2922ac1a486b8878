r"""Learning from many small graphs, as every task is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from specformer.datasets import GRAPH_SETS, Split
from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.tasks import estimate
from specformer.tasks.estimate import Estimate
from specformer.tasks.graphs.first_training import first_work, trained_first
from specformer.tasks.graphs.fit import base_prediction, learn_graphs, target_names
from specformer.tasks.graphs.models import TRAINED_MODELS
from specformer.tasks.graphs.predict import predict_molecules
from specformer.tasks.graphs.recipe import (
    FOREST,
    IDLE_IN_FORESTS,
    GraphRecipe,
    built_recipe,
    graph_recipe,
    recipe_kind,
)
from specformer.tasks.graphs.start import StartingPoint, seen
from specformer.tasks.graphs.trials import GraphTrials
from specformer.tasks.graphs.work import GraphWork, graph_spectra, graph_splits, job_graphs
from specformer.tasks.job import Job, Request
from specformer.tasks.lanes import check_lanes
from specformer.tasks.overview import of_graphs
from specformer.tasks.predictions import PredictionRequest, Predictions
from specformer.tasks.recipes.book import START
from specformer.tasks.recipes.settings import refuse_idle
from specformer.tasks.source import Kind
from specformer.tasks.task import Outcome, Task
from specformer.tasks.workplace import Workplace
from specformer.training.runs.folder import RunFolder

#: Keys of a result that its one row has.
_FIGURES = (
    "classes", "test", "val", "test_by_loss", "test_by_metric", "test_at_end", "test_together",
    "test_by_target",
)  # fmt: skip


_IDLE = re.compile(rf"({'|'.join(IDLE_IN_FORESTS)})[.=]")


class GraphLearning(Task[GraphWork]):
    """Classes or numbers of whole graphs, molecules above all."""

    kind: ClassVar[Kind] = "molecules"
    noun, plural = "a set of many graphs", "molecules"
    models = TRAINED_MODELS
    runs = 1
    options = frozenset(
        {"task", "metric", "lanes", "from", "smiles", "id", "split-column", "smiles-column"}
    ) | {"targets"}
    is_parallel = True

    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:
        return recipe_kind(model), ("schedule",) if model == FOREST else ()

    def concerning(self, model: str, changes: Sequence[str]) -> Sequence[str]:
        if model != FOREST:
            return changes
        return [change for change in changes if not _IDLE.match(change)]

    def resolve(self, request: Request) -> tuple[str, GraphRecipe]:
        """The recipe; with ``start``, one whose models are those of that run."""
        if request.model == FOREST:
            if request.start is not None:
                raise ConfigError("--from: a forest starts from no other model.")
            refuse_idle(request.changes, IDLE_IN_FORESTS, "a forest is grown once, without epochs")
        given: dict[str, Any] = dict(request.learned)
        if request.start is not None:
            given |= StartingPoint.of(request.start, request.model).settings
        chosen, recipe = graph_recipe(
            request.recipe, request.source, request.changes, request.model, given
        )
        if request.start is not None and recipe.start is not None:
            raise ConfigError(
                f"--from {request.start} and --set start={recipe.start}: give one of them."
            )
        return chosen, recipe

    def read_recipe(self, model: str, settings: Mapping[str, Any], where: str) -> GraphRecipe:
        return built_recipe(model, settings, where)

    def load(self, job: Job, place: Workplace) -> GraphWork:
        """The graphs with the chosen targets, their splits, and what the models start from."""
        check_lanes(place.lanes, place.workers)
        return self.work_on(job, place, job_graphs(job, place, job.settings.targets))

    def work_on(
        self, job: Job, place: Workplace, graphs: GraphSet, splits: Sequence[Split] | None = None
    ) -> GraphWork:
        """The work on graphs with their targets; ``splits`` if not the recipe's."""
        assert job.runs is not None
        start = None if job.start is None else StartingPoint.of(job.start, job.model)
        recipe = job.settings.settled(graphs)
        if start:
            start.check(graphs, recipe)
        if splits is None:
            splits = graph_splits(graphs, recipe, job.runs, job.seed)
        work = GraphWork(graphs, splits, job.model, recipe, job.seed, place.device, start=start)
        return replace(work, first=first_work(work, place))

    def load_beside(self, work: GraphWork, job: Job, place: Workplace) -> GraphWork:
        recipe = job.settings.settled(work.graphs)
        if (recipe.split, recipe.targets) != (work.recipe.split, work.recipe.targets):
            return self.load(job, place)
        own = GraphWork(work.graphs, work.splits, job.model, recipe, job.seed, place.device)
        return replace(own, first=first_work(own, place))

    def overview(self, work: GraphWork) -> dict[str, Any]:
        return of_graphs(work.graphs, work.recipe, work.splits)

    def estimate(self, work: GraphWork, device: torch.device) -> Estimate | None:
        if work.model == FOREST:
            return None
        return estimate.of_graphs(work.graphs, work.recipe, len(work.splits), device)

    def with_spectra(self, work: GraphWork, place: Workplace) -> GraphWork:
        first = work.first and self.with_spectra(work.first, place)
        with place.progress.stage(f"{work.graphs.name}: spectra", 1, ""):
            spectra = graph_spectra(work.graphs, work.recipe, place.device, place.cache)
        return replace(work, spectra=spectra, first=first)

    def fit(
        self,
        work: GraphWork,
        place: Workplace,
        checkpoint: Path | None = None,
        label: str | None = None,
    ) -> Outcome:
        """Train all runs, after the first training if there is one.

        ``label``: the name its arrays are kept under, if not the model's.
        """
        before = 0.0
        if work.first is not None:
            stem = checkpoint and checkpoint.with_name(f"{checkpoint.name}-{START}")
            start, before = trained_first(work.first, place, stem)
            work = replace(work, start=start, first=None)
        outcome = learn_graphs(work, place, checkpoint, label)
        known = seen(work.graphs, work.splits)
        more: dict[str, Any] = {"seen": known, "base": base_prediction(work)}
        if work.start:
            more |= {"start": work.start.origin, "seen": work.start.seen_with(known)}
        return replace(outcome, more=more, seconds_before=before + outcome.seconds_before)

    def summarise(self, work: GraphWork, outcome: Outcome) -> dict[str, Any]:
        row, recipe, graphs = outcome.row, work.recipe, work.graphs
        named = GRAPH_SETS.get(graphs.name)
        return {
            "title": f"Learning {named.about}" if named else f"Learning from {graphs.name}",
            "dataset": graphs.name,
            "split": recipe.split,
            "runs": len(work.splits),
            "task": recipe.task,
            "metric": recipe.metric,
            **{key: row[key] for key in _FIGURES if key in row},
            "settings": asdict(recipe),
            "targets": target_names(graphs),
            **outcome.more,
            "molecules": [row],
        }

    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        if request.smiles and request.graph:
            raise ConfigError("`--smiles` and `--graph`: use only one of them.")
        return predict_molecules(run, request, place)

    def trials(self, job: Job, place: Workplace) -> GraphTrials:
        return GraphTrials(job, place)
