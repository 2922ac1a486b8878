r"""Training runs of one model on a set of graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from specformer.datasets import GraphStore, Split
from specformer.graphs import GraphSet
from specformer.spectrum import ManySpectra
from specformer.tasks.graphs.models import largest_ring, model_for
from specformer.tasks.graphs.recipe import GraphRecipe
from specformer.tasks.graphs.start import StartingPoint
from specformer.tasks.run_seed import run_seed
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.loops.graphs import GraphFit, GraphTask, fit_graphs
from specformer.training.runs.checkpoint import Checkpoint


def fit_run(
    graphs: GraphSet,
    store: GraphStore,
    split: Split,
    model: str,
    recipe: GraphRecipe,
    *,
    run: int,
    seed: int,
    device: torch.device,
    start: StartingPoint | None = None,
    workers: Workers = ALONE,
    checkpoint: Path | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> GraphFit:
    """Train a model on one split, from ``start`` or fresh.

    Its seed follows from ``seed`` and the run's number. ``store`` holds the graphs packed for the
    device.
    """
    assert recipe.loss is not None
    assert recipe.metric is not None
    own_seed = run_seed(seed, run)
    torch.manual_seed(own_seed)
    fresh = first_model(graphs, model, recipe, start, run).to(device)
    task = GraphTask(
        store,
        split.train,
        split.val,
        split.test,
        recipe.loss,
        recipe.metric,
        recipe.standardise,
    )
    state = None
    if checkpoint:
        purpose = _purpose(graphs, split, model, recipe, own_seed, start)
        state = Checkpoint(checkpoint, purpose)
    return fit_graphs(
        fresh,
        task,
        recipe.schedule,
        seed=own_seed,
        monitor=recipe.monitor,
        precision=recipe.precision,
        keep_inputs=start is not None,
        workers=workers,
        checkpoint=state,
        on_epoch=on_epoch,
    )


def first_model(
    graphs: GraphSet,
    model: str,
    recipe: GraphRecipe,
    start: StartingPoint | None = None,
    run: int = 0,
) -> nn.Module:
    """What a run begins with: a model of ``start``'s, or a fresh one."""
    return start.model_for(graphs, recipe, run) if start else model_for(graphs, model, recipe)


def _purpose(
    graphs: GraphSet,
    split: Split,
    model: str,
    recipe: GraphRecipe,
    seed: int,
    start: StartingPoint | None,
) -> str:
    """What a checkpoint's state belongs to: nothing may differ when a run goes on."""
    began = [start.fingerprint] if start else []
    return json.dumps([model, asdict(recipe), graphs.fingerprint, split.fingerprint, seed, *began])


@dataclass(frozen=True)
class GraphJob:
    """All runs of one model on one set.

    Args:
        graphs: the set.
        spectra: its eigenpairs.
        splits: one a run.
        model: its name.
        recipe: settings, :meth:`~GraphRecipe.settled` for the set.
        device: where to train.
        seed: of the first run.
        start: models to start from; None for fresh ones.
    """

    graphs: GraphSet
    spectra: ManySpectra
    splits: Sequence[Split]
    model: str
    recipe: GraphRecipe
    device: torch.device
    seed: int
    start: StartingPoint | None = None

    def store(self) -> GraphStore:
        """The graphs packed, on the device if they fit."""
        max_ring = largest_ring(self.model, self.recipe)
        return GraphStore.build(self.graphs, self.spectra, max_ring=max_ring).placed(self.device)

    def fit(
        self,
        store: GraphStore,
        run: int,
        *,
        workers: Workers = ALONE,
        checkpoint: Path | None = None,
        on_epoch: Callable[[int, float], None] | None = None,
    ) -> GraphFit:
        """One of the runs; see :func:`fit_run`."""
        return fit_run(
            self.graphs,
            store,
            self.splits[run],
            self.model,
            self.recipe,
            run=run,
            seed=self.seed,
            device=self.device,
            start=self.start,
            workers=workers,
            checkpoint=checkpoint,
            on_epoch=on_epoch,
        )
