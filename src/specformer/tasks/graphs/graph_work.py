r"""All runs of one model on one set of graphs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from specformer.baselines.graphs.forest import Leaves, MorganForest
from specformer.datasets import GraphStore, Split, graph_set, graph_split
from specformer.datasets.molecule_splits import graph_folds, resampled_splits
from specformer.datasets.splits import fold_count
from specformer.graphs import GraphSet
from specformer.spectrum import ManySpectra, decompose_many
from specformer.spectrum.cache import fetch_or_solve
from specformer.tasks.graphs.graph_models import StartingPoint, largest_ring, model_for, num_outputs
from specformer.tasks.graphs.graph_recipe import ForestModel, GraphRecipe, chosen_targets
from specformer.tasks.job import Job, Workplace, run_seed
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.engine.turns import Steps, exhausting
from specformer.training.evaluation.graph_metrics import Loss, mean_error, metric_named
from specformer.training.evaluation.graphs import GraphMonitor
from specformer.training.loops.graphs import Chosen, GraphFit, GraphTask, graph_steps
from specformer.training.runs.checkpoint import Checkpoint

#: Matrix, largest ring and fingerprint of packed graphs.
StoreKey = tuple[str, int | None, int | None]


@dataclass(frozen=True)
class GraphWork:
    """A set of graphs, one split per run, a model, and a recipe settled for the set.

    ``spectra`` is None until they are computed. ``start`` has trained models to start from;
    ``first`` is a first training on another set. Both are None for fresh models.
    """

    graphs: GraphSet
    splits: Sequence[Split]
    model: str
    recipe: GraphRecipe
    seed: int
    device: torch.device
    spectra: ManySpectra | None = None
    start: StartingPoint | None = None
    first: GraphWork | None = None

    def store(self) -> GraphStore:
        """The graphs packed, on the device if they fit."""
        assert self.spectra is not None
        _, ring, fingerprint = self.store_key
        store = GraphStore.build(
            self.graphs,
            self.spectra,
            max_ring=ring,
            fingerprint=fingerprint,
        )
        return store.placed(self.device)

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
        task = GraphTask(
            store,
            split.train,
            split.val,
            split.test,
            recipe.loss,
            recipe.metric,
            recipe.standardise,
        )
        if isinstance(recipe.model, ForestModel):
            return grow_forest(task, recipe.model, num_outputs(self.graphs, recipe), seed, on_epoch)
        torch.manual_seed(seed)
        model = self.first_model(run).to(self.device)
        state = Checkpoint(checkpoint, self._purpose(split, seed)) if checkpoint else None
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

    def _purpose(self, split: Split, seed: int) -> str:
        """What a checkpoint belongs to; a run goes on only if all of it is the same."""
        began = [self.start.fingerprint] if self.start else []
        of = [self.model, asdict(self.recipe), self.graphs.fingerprint, split.fingerprint, seed]
        return json.dumps([*of, *began])


def job_graphs(job: Job, place: Workplace, targets: Sequence[str] | None) -> GraphSet:
    """The graphs of a job with the targets of these names, or all of them."""
    named = None if targets is None else tuple(targets)
    graphs = graph_set(job.source, place.data, replace(job.columns, targets=named))
    return chosen_targets(graphs, targets)


def graph_spectra(
    graphs: GraphSet, recipe: GraphRecipe, device: torch.device, cache: str | Path | None
) -> ManySpectra:
    """The eigenpairs that a recipe needs, solved on a device, or mapped from the cache."""
    if cache is None:
        return decompose_many(graphs, matrix=recipe.matrix, device=device)
    return fetch_or_solve(Path(cache), graphs, recipe.matrix, device)


def graph_splits(graphs: GraphSet, recipe: GraphRecipe, runs: int, seed: int) -> list[Split]:
    """One split per run; all runs share a fixed split."""
    folds = fold_count(recipe.split)
    if folds is not None:
        return graph_folds(graphs, folds, runs, seed)
    if recipe.split.startswith("resampled"):
        return resampled_splits(graphs, recipe.split, runs, seed)
    return [graph_split(graphs, recipe.split, seed + run) for run in range(runs)]


_LEAVES: dict[Loss, Leaves] = {"l1": "numbers", "mse": "numbers", "bce": "ones", "ce": "classes"}
_RULES: tuple[GraphMonitor, ...] = ("metric", "loss", "last")


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
    forest = MorganForest.grown(
        counts[task.train].numpy(),
        y[task.train].numpy(),
        _LEAVES[task.loss],
        outputs,
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
    chosen = {rule: Chosen(val, test, 0) for rule in _RULES}
    curves = np.array([[losses[0], losses[1], val if math.isfinite(val) else math.nan]])
    seconds = time.perf_counter() - started
    predicted, measured = parts[2]
    return GraphFit(forest, chosen, curves, 1, seconds, 0.0, predicted.numpy(), measured.numpy())
