r"""The task of learning from many small graphs, and a search of its settings."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from specformer.datasets import GRAPH_SETS, GraphStore, Split, graph_set
from specformer.errors import ConfigError, RunError
from specformer.graphs import GraphSet
from specformer.graphs.same_graphs import shared_with
from specformer.nn.pretrained import Pretrained
from specformer.tasks import estimate
from specformer.tasks.estimate import Estimate
from specformer.tasks.graphs.graph_fit import base_prediction, learn_graphs
from specformer.tasks.graphs.graph_lanes import check_lanes
from specformer.tasks.graphs.graph_models import (
    TRAINED_MODELS,
    StartingPoint,
    graph_model,
    model_for,
    seen,
)
from specformer.tasks.graphs.graph_predict import predict_molecules
from specformer.tasks.graphs.graph_recipe import (
    FOREST,
    IDLE_IN_FORESTS,
    ForestModel,
    GraphRecipe,
    graph_recipe,
    of_models,
    recipe_kind,
)
from specformer.tasks.graphs.graph_work import (
    GraphWork,
    StoreKey,
    graph_spectra,
    graph_splits,
    job_graphs,
)
from specformer.tasks.job import Job, Kind, Request, Workplace
from specformer.tasks.overview import of_graphs
from specformer.tasks.recipes.settings import START, refuse_idle
from specformer.tasks.task import (
    Measured,
    Outcome,
    PredictionRequest,
    Predictions,
    Task,
    Trials,
    check_parts,
    parameter_count,
    target_names,
)
from specformer.training.engine.capture import release_memory
from specformer.training.runs.folder import RunFolder

logger = logging.getLogger(__name__)

#: Keys of a row that the result has too.
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
    runs = 5
    options = frozenset(
        {"task", "metric", "lanes", "from", "smiles", "id", "split-column", "smiles-column"}
    ) | {"targets"}

    def usual_runs(self, source: str) -> int:
        """One of a named set; several of a user's file, whose mean predicts better."""
        return 1 if source in GRAPH_SETS else self.runs

    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:
        return recipe_kind(model), ("schedule",) if model == FOREST else ()

    def refuse_workers(self, job: Job) -> None:
        """Refuse nothing: every job can train in several processes."""

    def concerning(self, model: str, changes: Sequence[str]) -> Sequence[str]:
        if model != FOREST:
            return changes
        return [change for change in changes if not _IDLE.match(change)]

    def resolve(self, request: Request) -> tuple[str, GraphRecipe]:
        """The recipe; with ``start``, its models have the settings of that run's."""
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
        check_parts(graphs.name, graphs.y, recipe.metric, splits, "graphs")
        work = GraphWork(graphs, splits, job.model, recipe, job.seed, place.device, start=start)
        return replace(work, first=first_work(work, place))

    def load_beside(self, work: GraphWork, job: Job, place: Workplace) -> GraphWork:
        recipe = job.settings.settled(work.graphs)
        if (recipe.split, recipe.targets) != (work.recipe.split, work.recipe.targets):
            return self.load(job, place)
        return self.work_on(job, place, work.graphs, work.splits)

    def overview(self, work: GraphWork) -> dict[str, Any]:
        return of_graphs(work.graphs, work.recipe, work.splits)

    def estimate(self, work: GraphWork, device: torch.device) -> Estimate | None:
        if work.model == FOREST:
            return None
        return estimate.of_graphs(work.graphs, work.recipe, len(work.splits), device)

    def with_spectra(
        self, work: GraphWork, place: Workplace, beside: GraphWork | None = None
    ) -> GraphWork:
        first = work.first and self.with_spectra(work.first, place)
        if beside and beside.spectra and beside.recipe.matrix == work.recipe.matrix:
            return replace(work, spectra=beside.spectra, first=first)
        with place.progress.stage(f"{work.graphs.name}: spectra", 1, ""):
            spectra = graph_spectra(work.graphs, work.recipe, place.device, place.cache)
        return replace(work, spectra=spectra, first=first)

    def fit(
        self, work: GraphWork, place: Workplace, checkpoint: Path | None, label: str | None = None
    ) -> Outcome:
        """Train all runs, after the first training if there is one."""
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
            "targets": target_names(graphs.task_names, graphs.num_tasks),
            **outcome.more,
            "molecules": [row],
        }

    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
        if request.smiles and request.graph:
            raise ConfigError("`--smiles` and `--graph`: use only one of them.")
        return predict_molecules(run, request, place)

    def trials(self, job: Job, place: Workplace) -> GraphTrials:
        return GraphTrials(self, job, place)


def check_start(recipe: GraphRecipe, model: str) -> None:
    """Refuse settings that do not fit the models a recipe starts from; needs no data."""
    if recipe.start is None:
        return
    first = graph_recipe(START, recipe.start, (), model)[1]
    fresh, trained = (graph_model(model, each, [1], [1], 1) for each in (recipe, first))
    _starting_point(recipe.start, first, model, [trained]).check_same(recipe, fresh)


def first_work(work: GraphWork, place: Workplace) -> GraphWork | None:
    """The first training that a recipe asks for, checked; None where models start fresh.

    It is one run of the recipe ``start`` on the set that ``recipe.start`` names, without the graphs
    that validate or test in ``work``, which must stay unseen.
    """
    origin = work.recipe.start
    if origin is None:
        return None
    found = graph_set(origin, place.data)
    own = graph_recipe(START, origin, (), work.model)[1].settled(found)
    untrained = _starting_point(found.name, own, work.model, [model_for(found, work.model, own)])
    untrained.check(work.graphs, work.recipe)  # now, and not after hours of training
    (first,) = graph_splits(found, own, 1, work.seed)
    first = _without_held_out(first, found, work.graphs, work.splits)
    return replace(work, graphs=found, splits=[first], recipe=own)


def trained_first(
    first: GraphWork, place: Workplace, checkpoint: Path | None = None
) -> tuple[StartingPoint, float]:
    """Train what :func:`first_work` gives; also returns the seconds that the checkpoint held."""
    outcome = learn_graphs(first, replace(place, lanes=1), checkpoint, label=START)
    models = [model.cpu() for model in outcome.models]  # lanes are other processes
    start = _starting_point(first.graphs.name, first.recipe, first.model, models)
    known, seconds = seen(first.graphs, first.splits), outcome.row["seconds"]
    release_memory()
    return replace(start, seen=known, seconds=seconds), outcome.seconds_before


def _starting_point(
    origin: str, recipe: GraphRecipe, model: str, models: Sequence[nn.Module]
) -> StartingPoint:
    """Models of a recipe to start from; what they have seen is not filled in yet."""
    kept = tuple(each for each in models if isinstance(each, Pretrained))
    return StartingPoint(origin, model, kept, of_models(recipe), seen={})


def _without_held_out(
    split: Split, graphs: GraphSet, later: GraphSet, splits: Sequence[Split]
) -> Split:
    """The split without training graphs that later validate or test."""
    held_out = np.logical_or.reduce([split.val | split.test for split in splits])
    shared = shared_with(graphs, later.subset(np.flatnonzero(held_out)))
    kept = split.train & ~shared
    if not kept.any():
        raise ConfigError(
            f"{graphs.name}: all of its training graphs validate or test on {later.name}."
        )
    logger.info(
        "%s: %s of %s training graphs are left out; they validate or test on %s.",
        graphs.name,
        f"{int(split.train.sum() - kept.sum()):,}",
        f"{int(split.train.sum()):,}",
        later.name,
    )
    return replace(split, train=kept)


class GraphTrials(Trials):
    """One model on one set of graphs.

    Spectra and packed graphs are computed once for all trials. With ``job.start`` every trial
    starts from that run's models, whose settings are not searched.
    """

    space_file, window = "graph_search.yaml", 5  # a short trial has a dozen epochs in all
    splits, runs = 1, 3

    def __init__(self, learning: GraphLearning, job: Job, place: Workplace) -> None:
        super().__init__(job, place)
        first: GraphRecipe = super().recipe(self.assignments)
        if first.start is not None:
            raise ConfigError(
                f"start={first.start}: a search trains nothing first; name a run with --from, "
                "or --set start=null."
            )
        graphs = job_graphs(job, place, first.targets)
        self.work = learning.work_on(replace(job, settings=first), place, graphs, splits=())
        self.name, self.metric = graphs.name, str(self.work.recipe.metric)
        if start := self.work.start:
            self.begun_from = start.fingerprint[:12]
            fixed = {"matrix", *(f"model.{name}" for name in start.settings["model"])}
            self.space = {key: values for key, values in self.space.items() if key not in fixed}
        self._splits: dict[int, list[Split]] = {}
        self._stores: dict[StoreKey, GraphStore] = {}

    def recipe(self, changes: Sequence[str]) -> GraphRecipe:
        """The recipe with these changes, settled for the graphs."""
        recipe: GraphRecipe = super().recipe(changes)
        return recipe.settled(self.work.graphs)

    def size(self, recipe: GraphRecipe) -> int:
        """Parameters of a recipe's model; a forest has none before it is grown."""
        if isinstance(recipe.model, ForestModel):
            return 0
        return parameter_count(replace(self.work, recipe=recipe).first_model())

    def measure(self, recipe: GraphRecipe, splits: int) -> Measured:
        """Train one split after the other."""
        epochs = recipe.schedule.epochs
        if splits not in self._splits:  # scaffolds take a while
            found = graph_splits(self.work.graphs, recipe, splits, self.work.seed)
            # A search tests on the validation part, so that test data are not used.
            self._splits[splits] = [replace(split, test=split.val) for split in found]
        work = replace(self.work, recipe=recipe, splits=self._splits[splits])
        store = self._store(recipe)
        try:
            fits = [work.fit(store, run) for run in range(splits)]
        except RunError:  # no epoch of a run gave a number
            return Measured(score=None, val=None, epochs=float(epochs))
        curves = torch.from_numpy(np.stack([fit.curves[:, 2] for fit in fits], axis=1))
        kept = [fit.chosen[recipe.monitor].val for fit in fits]
        return self.judged(curves, torch.tensor([fit.epochs for fit in fits]), kept)

    def _store(self, recipe: GraphRecipe) -> GraphStore:
        work = replace(self.work, recipe=recipe)
        if work.store_key not in self._stores:
            place = self.place
            spectra = graph_spectra(work.graphs, recipe, place.device, place.cache)
            self._stores[work.store_key] = replace(work, spectra=spectra).store()
        return self._stores[work.store_key]
