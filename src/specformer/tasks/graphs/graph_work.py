r"""Many small graphs: data, splits, spectra and models of a job, and its training."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from torch import nn

from specformer.baselines.graphs.forest import FragmentForest, Leaves
from specformer.datasets import GRAPH_SETS, GraphStore, Split, graph_set, graph_split
from specformer.datasets.molecule_splits import graph_folds, resampled_splits
from specformer.datasets.splits import fold_count
from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.graphs.colours import shared_with
from specformer.nn.pretrained import Pretrained
from specformer.spectrum import ManySpectra, decompose_many
from specformer.spectrum.many.spectra import fetch_or_solve
from specformer.tasks import estimate, overview
from specformer.tasks.estimate import Estimate
from specformer.tasks.graphs.graph_fit import base_prediction, learn_graphs
from specformer.tasks.graphs.graph_models import (
    TRAINED_MODELS,
    StartingPoint,
    graph_model,
    largest_ring,
    model_for,
    num_outputs,
    seen,
)
from specformer.tasks.graphs.graph_recipe import (
    FOREST,
    IDLE_IN_FORESTS,
    ForestModel,
    GraphRecipe,
    chosen_targets,
    graph_recipe,
    of_models,
    recipe_kind,
    with_class_names,
)
from specformer.tasks.job import Job, Kind, Request, Workplace, run_seed
from specformer.tasks.recipes.settings import START, refuse_idle
from specformer.tasks.task import Outcome, Work, check_parts, target_names
from specformer.training.engine.capture import release_memory
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.engine.turns import Steps, exhausting
from specformer.training.evaluation.graph_metrics import Loss, mean_error, metric_named
from specformer.training.evaluation.graphs import GraphMonitor
from specformer.training.loops.graphs import Chosen, GraphFit, GraphTask, graph_steps
from specformer.training.runs.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

#: Matrix, largest ring and fingerprint of packed graphs.
StoreKey = tuple[str, int | None, int | None]
#: The usual number of runs on a user's file, whose mean predicts better than one.
_RUNS = 5
#: Keys of a row that the result has too.
_FIGURES = (
    "classes", "test", "val", "test_by_loss", "test_by_metric", "test_at_end", "test_together",
    "test_by_target",
)  # fmt: skip
_IDLE = re.compile(rf"({'|'.join(IDLE_IN_FORESTS)})[.=]")


@dataclass(frozen=True)
class GraphWork(Work):
    """A set of graphs, one split per run, a model, and a recipe settled for the set.

    ``spectra`` is None until they are computed. ``start`` has trained models to start from;
    ``first`` is a first training on another set. Both are None for fresh models.
    """

    kind: ClassVar[Kind] = "molecules"
    noun, plural = "a set of many graphs", "molecules"
    models = TRAINED_MODELS
    options: ClassVar[frozenset[str]] = frozenset(
        {"task", "metric", "lanes", "from", "smiles", "id", "split-column", "smiles-column"}
    ) | {"targets"}

    graphs: GraphSet
    splits: Sequence[Split]
    model: str
    recipe: GraphRecipe
    seed: int
    device: torch.device
    spectra: ManySpectra | None = None
    start: StartingPoint | None = None
    first: GraphWork | None = None

    @classmethod
    def usual_runs(cls, source: str) -> int:
        return 1 if source in GRAPH_SETS else _RUNS

    @classmethod
    def recipe_class(cls, model: str | None) -> tuple[type, Sequence[str]]:
        return recipe_kind(model), IDLE_IN_FORESTS if model == FOREST else ()

    @classmethod
    def refuse_workers(cls, job: Job) -> None:
        """Refuse nothing: every job can train in several processes."""

    @classmethod
    def concerning(cls, model: str, changes: Sequence[str]) -> Sequence[str]:
        if model != FOREST:
            return changes
        return [change for change in changes if not _IDLE.match(change)]

    @classmethod
    def resolve(cls, request: Request) -> tuple[str, GraphRecipe]:
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

    @classmethod
    def load(cls, job: Job, place: Workplace) -> Self:
        """The graphs with the chosen targets, their splits, and what the models start from."""
        return cls.on(job, place, job_graphs(job, place, job.settings.targets))

    @classmethod
    def on(
        cls, job: Job, place: Workplace, graphs: GraphSet, splits: Sequence[Split] | None = None
    ) -> Self:
        """The work on graphs with their targets; ``splits`` if not the recipe's."""
        assert job.runs is not None
        start = None if job.start is None else StartingPoint.of(job.start, job.model)
        recipe = job.settings.settled(graphs)
        if start:
            start.check(graphs, recipe)
        if splits is None:
            splits = graph_splits(graphs, recipe, job.runs, job.seed)
        check_parts(graphs.name, graphs.y, recipe.metric, splits, "graphs")
        if job.model == FOREST and (graphs.num_features or graphs.num_edge_features):
            logger.warning(
                "%s: a forest ignores the numbers of nodes and edges; it looks at categories only.",
                graphs.name,
            )
        work = cls(graphs, splits, job.model, recipe, job.seed, place.device, start=start)
        if job.model != FOREST:
            work.first_model()  # refuses settings that no model can have, before the spectra
        if recipe.task != "regression":
            refuse_idle(job.changes, ["standardise"], "classes are not standardised")
        return replace(work, first=first_work(work, place))

    def beside(self, job: Job, place: Workplace) -> Self:
        recipe = job.settings.settled(self.graphs)
        if (recipe.split, recipe.targets) != (self.recipe.split, self.recipe.targets):
            return self.load(job, place)
        return self.on(job, place, self.graphs, self.splits)

    def overview(self) -> dict[str, Any]:
        return overview.of_graphs(self.graphs, self.recipe, self.splits)

    def estimate(self, device: torch.device) -> Estimate | None:
        if self.model == FOREST:
            return None
        return estimate.of_graphs(self.graphs, self.recipe, len(self.splits), device)

    def with_spectra(self, place: Workplace, beside: Self | None = None) -> Self:
        first = self.first and self.first.with_spectra(place)
        if beside and beside.spectra and beside.recipe.matrix == self.recipe.matrix:
            return replace(self, spectra=beside.spectra, first=first)
        with place.progress.stage(f"{self.graphs.name}: spectra", 1, ""):
            spectra = graph_spectra(self.graphs, self.recipe, place)
        return replace(self, spectra=spectra, first=first)

    def train(self, place: Workplace, checkpoint: Path | None, label: str | None = None) -> Outcome:
        """Train all runs, after the first training if there is one."""
        work, before = self, 0.0
        if self.first is not None:
            stem = checkpoint and checkpoint.with_name(f"{checkpoint.name}-{START}")
            start, before = trained_first(self.first, place, stem)
            work = replace(self, start=start, first=None)
        outcome = learn_graphs(work, place, checkpoint, label)
        known = seen(work.graphs, work.splits)
        more: dict[str, Any] = {"seen": known, "base": base_prediction(work)}
        if work.start:
            more |= {"start": work.start.origin, "seen": work.start.seen_with(known)}
        return replace(outcome, more=more, seconds_before=before + outcome.seconds_before)

    def summarise(self, outcome: Outcome) -> dict[str, Any]:
        row, recipe, graphs = outcome.row, self.recipe, self.graphs
        named = GRAPH_SETS.get(graphs.name)
        return {
            "title": f"Learning {named.about}" if named else f"Learning from {graphs.name}",
            "dataset": graphs.name,
            "split": recipe.split,
            "runs": len(self.splits),
            "task": recipe.task,
            "metric": recipe.metric,
            **{key: row[key] for key in _FIGURES if key in row},
            "settings": asdict(recipe),
            "targets": target_names(graphs.task_names, graphs.num_tasks),
            **outcome.more,
            "molecules": [row],
        }

    def store(self) -> GraphStore:
        """The graphs packed, on the device if they fit."""
        assert self.spectra is not None
        _, ring, prints = self.store_key
        store = GraphStore.build(self.graphs, self.spectra, max_ring=ring, fingerprint=prints)
        return store.placed(self.device)

    @property
    def fingerprint(self) -> str:
        """The data's fingerprint."""
        return self.graphs.fingerprint

    @property
    def store_key(self) -> StoreKey:
        """What the packed graphs depend on: works on the same graphs with equal keys share them."""
        fingerprint = getattr(self.recipe.model, "fingerprint", None)
        return self.recipe.matrix, largest_ring(self.model, self.recipe), fingerprint

    def first_model(self, run: int = 0) -> nn.Module:
        """The model that a run begins with: one of ``start``, or a fresh one."""
        if self.start:
            return self.start.model_for(self.graphs, self.recipe, run)
        return model_for(self.graphs, self.model, self.recipe)

    def steps(
        self,
        store: GraphStore,
        run: int,
        *,
        workers: Workers = ALONE,
        checkpoint: Path | None = None,
        on_epoch: Callable[[int, float], None] | None = None,
        in_turn: bool = False,
    ) -> Steps[GraphFit]:
        """Train one of the runs. Its seed follows from ``seed`` and the run's number.

        ``store`` holds the graphs packed for the device. ``steps`` stops after each step, for runs
        that train ``in_turn``; ``fit`` takes all steps and returns the :class:`GraphFit`.
        """
        recipe, split = self.recipe, self.splits[run]
        assert recipe.loss is not None
        assert recipe.metric is not None
        seed = run_seed(self.seed, run)
        parts = split.train, split.val, split.test
        task = GraphTask(store, *parts, recipe.loss, recipe.metric, recipe.standardise)
        if isinstance(recipe.model, ForestModel):
            return grow_forest(task, recipe.model, num_outputs(self.graphs, recipe), seed, on_epoch)
        torch.manual_seed(seed)
        model = self.first_model(run).to(self.device)
        state = None
        if checkpoint:
            # A run goes on only if all of this is the same.
            purpose = [self.model, asdict(recipe), self.fingerprint, split.fingerprint, seed]
            purpose += [self.start.fingerprint] if self.start else []
            state = Checkpoint(checkpoint, json.dumps(purpose))
        fit = yield from graph_steps(
            model,
            task,
            recipe.schedule,
            seed=seed,
            monitor=recipe.monitor,
            precision=recipe.precision,
            keep_inputs=self.start is not None,
            workers=workers,
            checkpoint=state,
            on_epoch=on_epoch,
            which=f"run {run + 1} of {len(self.splits)}",
            in_turn=in_turn,
        )
        return fit

    fit = exhausting(steps)


def job_graphs(job: Job, place: Workplace, targets: Sequence[str] | None) -> GraphSet:
    """The graphs of a job with the targets of these names, or all of them."""
    named = None if targets is None else tuple(targets)
    graphs = graph_set(job.source, place.data, replace(job.columns, targets=named))
    graphs = chosen_targets(graphs, targets)
    return with_class_names(graphs) if job.settings.task == "classification" else graphs


def graph_spectra(graphs: GraphSet, recipe: GraphRecipe, place: Workplace) -> ManySpectra:
    """The eigenpairs that a recipe needs, solved on a device, or mapped from the cache."""
    if place.cache is None:
        return decompose_many(graphs, matrix=recipe.matrix, device=place.device)
    return fetch_or_solve(place.cache, graphs, recipe.matrix, place.device)


def graph_splits(graphs: GraphSet, recipe: GraphRecipe, runs: int, seed: int) -> list[Split]:
    """One split per run; all runs share a fixed split."""
    folds = fold_count(recipe.split)
    if folds is not None:
        return graph_folds(graphs, folds, runs, seed)
    if recipe.split.startswith("resampled"):
        return resampled_splits(graphs, recipe.split, runs, seed)
    return [graph_split(graphs, recipe.split, seed + run) for run in range(runs)]


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
    (split,) = graph_splits(found, own, 1, work.seed)
    held_out = np.logical_or.reduce([later.val | later.test for later in work.splits])
    kept = split.train & ~shared_with(found, work.graphs.subset(np.flatnonzero(held_out)))
    if not kept.any():
        raise ConfigError(
            f"{found.name}: all of its training graphs validate or test on {work.graphs.name}."
        )
    logger.info(
        "%s: %s of %s training graphs are left out; they validate or test on %s.",
        found.name,
        f"{int(split.train.sum() - kept.sum()):,}",
        f"{int(split.train.sum()):,}",
        work.graphs.name,
    )
    return replace(work, graphs=found, splits=[replace(split, train=kept)], recipe=own)


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


_LEAVES: dict[Loss, Leaves] = {"l1": "numbers", "mse": "numbers", "bce": "ones", "ce": "classes"}


def grow_forest(
    task: GraphTask,
    settings: ForestModel,
    outputs: int,
    seed: int,
    on_epoch: Callable[[int, float], None] | None = None,
) -> GraphFit:
    """Grow a forest on the training part, as if that were one epoch of training.

    ``outputs`` counts targets, or classes of one target.
    """
    assert task.store.fingerprints is not None
    assert task.store.y is not None
    started = time.perf_counter()
    counts, y = task.store.fingerprints.cpu(), task.store.y.double().cpu()
    options = asdict(settings)
    del options["fingerprint"]
    forest = FragmentForest.grown(
        counts[task.train].numpy(),
        y[task.train].numpy(),
        _LEAVES[task.loss],
        outputs,
        (task.store.nodes.shape[1], task.store.bond_table.shape[1]),
        seed=seed,
        threads=torch.get_num_threads(),
        **options,
    )
    metric = metric_named(task.metric)
    parts = [(forest.outputs(counts[part]), y[part]) for part in (task.train, task.val, task.test)]
    losses = [mean_error(task.loss, *part) for part in parts]
    val, test = (metric(found.numpy(), known.numpy()) for found, known in parts[1:])
    if on_epoch:
        on_epoch(1, val)
    chosen = {rule: Chosen(val, test, 0) for rule in get_args(GraphMonitor)}
    curves = np.array([[losses[0], losses[1], val if math.isfinite(val) else math.nan]])
    seconds = time.perf_counter() - started
    predicted, measured = parts[2]
    return GraphFit(forest, chosen, curves, 1, seconds, 0.0, predicted.numpy(), measured.numpy())
