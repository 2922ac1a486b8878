r"""Learn from one set of graphs with one model, run after run."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import GraphStore, Split, graph_split
from specformer.errors import ConfigError
from specformer.experiments.graph_recipe import (
    GraphRecipe,
    cardinalities,
    graph_model,
    largest_ring,
)
from specformer.experiments.molecule_pictures import filter_pictures
from specformer.graphs import GraphSet
from specformer.spectrum import ManySpectra, decompose_many
from specformer.spectrum.many_cache import fetch_or_solve
from specformer.training.checkpoint import Checkpoint
from specformer.training.distributed import ALONE, Workers
from specformer.training.graph_evaluation import Evaluation, Work
from specformer.training.graph_loop import Chosen, GraphFit, GraphTask, fit_graphs
from specformer.training.graph_metrics import metric_named
from specformer.training.metrics import summary
from specformer.training.progress import Progress

logger = logging.getLogger(__name__)

_PREDICT_BATCH = 64
#: Targets whose predictions a report shows.
_SHOWN = 4

#: The part of a split that test figures are of.
TestedOn = Literal["test", "val"]


@dataclass(frozen=True)
class GraphOutcome:
    """A row for tables, arrays to draw, and the trained models by run.

    ``seconds_before`` went into epochs that checkpoints held already.
    """

    row: dict[str, Any]
    arrays: dict[str, np.ndarray]
    models: list[nn.Module]
    seconds_before: float


def graph_spectra(
    graphs: GraphSet, recipe: GraphRecipe, device: torch.device, cache: str | Path | None
) -> ManySpectra:
    """The eigenpairs a recipe asks for, solved on a device.

    With a cache they stay in its file, and go where the graphs go if they fit there.
    """
    if cache is None:
        return decompose_many(graphs, matrix=recipe.matrix, device=device)
    return fetch_or_solve(
        Path(cache), graphs, matrix=recipe.matrix, isolated="one", device=device, solve_in=None
    )


def graph_splits(graphs: GraphSet, recipe: GraphRecipe, runs: int, seed: int) -> list[Split]:
    """One split a run; a fixed one serves all."""
    return [graph_split(graphs, recipe.split, seed + run) for run in range(runs)]


def learn_graphs(
    graphs: GraphSet,
    spectra: ManySpectra,
    splits: Sequence[Split],
    model: str,
    recipe: GraphRecipe,
    *,
    device: torch.device,
    seed: int,
    progress: Progress,
    label: str | None = None,
    workers: Workers = ALONE,
    checkpoint: Callable[[int], Path] | None = None,
) -> GraphOutcome:
    """Train one model a split, one after the other.

    Args:
        graphs: the set.
        spectra: its eigenpairs.
        splits: one a run.
        model: its name.
        recipe: settings, :meth:`~GraphRecipe.settled` for the set.
        device: where to train.
        seed: of the first run.
        progress: who is told.
        label: the name its arrays are kept under, if not the model's.
        workers: who trains together.
        checkpoint: names the file of a run's state, to write now and then and to go on from.
    """
    started = time.perf_counter()
    label = label or model
    assert recipe.metric is not None
    tested_on = _tested_on(graphs, splits)
    _check_parts(graphs, splits, recipe, tested_on)
    max_ring = largest_ring(model, recipe)
    store = GraphStore.build(graphs, spectra, max_ring=max_ring).placed(device)
    fits: list[GraphFit] = []
    for run, split in enumerate(splits):
        stage = f"{graphs.name}: {label}" + (f", run {run + 1}" if len(splits) > 1 else "")
        with progress.stage(stage, recipe.schedule.epochs, recipe.metric) as update:
            fit = fit_run(
                graphs,
                store,
                split,
                model,
                recipe,
                run=run,
                seed=seed,
                device=device,
                tested_on=tested_on,
                workers=workers,
                checkpoint=checkpoint(run) if checkpoint else None,
                on_epoch=update,
            )
            fits.append(fit)
    before = sum(fit.seconds_before for fit in fits)
    row = {
        "dataset": graphs.name,
        "description": _describe(graphs),
        "model": model,
        "runs": len(splits),
        "metric": recipe.metric,
        "targets": list(graphs.task_names or ())[:_SHOWN],
        "splits": [split.fingerprint for split in splits],
        "tested_on": tested_on,
        **_figures(fits, recipe),
        "parameters": sum(parameter.numel() for parameter in fits[0].model.parameters()),
        "epochs": float(recipe.schedule.epochs),
        "seconds_per_epoch": float(np.mean([fit.seconds_per_epoch for fit in fits])),
        "seconds": time.perf_counter() - started + before,
    }
    curves = np.stack([fit.curves for fit in fits], axis=1)
    where = f"molecules/{graphs.name}/{label}"
    tested = np.flatnonzero(getattr(splits[0], tested_on))
    arrays = {
        f"{where}/curve": curves,
        f"{where}/tested": _tested(fits, recipe),
        **filter_pictures(where, fits[0].model, spectra, tested, recipe.matrix),
    }
    return GraphOutcome(row, arrays, [fit.model for fit in fits], before)


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
    tested_on: TestedOn = "test",
    workers: Workers = ALONE,
    checkpoint: Path | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> GraphFit:
    """Train a fresh model on one split; its seed follows from ``seed`` and the run's number.

    ``store`` holds the graphs packed for the device. With ``tested_on="val"`` nothing is read of
    the test part.
    """
    assert recipe.loss is not None
    assert recipe.metric is not None
    own_seed = 100_003 * seed + run
    atoms, bonds = cardinalities(graphs, recipe)
    torch.manual_seed(own_seed)
    fresh = graph_model(model, recipe, atoms, bonds, graphs.num_tasks).to(device)
    parts = {name: np.flatnonzero(getattr(split, name)) for name in ("train", "val", "test")}
    task = GraphTask(
        store,
        parts["train"],
        parts["val"],
        parts[tested_on],
        recipe.loss,
        recipe.metric,
        recipe.standardise,
    )
    state = Checkpoint(checkpoint, _purpose(model, recipe, split, own_seed)) if checkpoint else None
    return fit_graphs(
        fresh,
        task,
        recipe.schedule,
        seed=own_seed,
        monitor=recipe.monitor,
        precision=recipe.precision,
        workers=workers,
        checkpoint=state,
        on_epoch=on_epoch,
    )


def predict_graphs(
    models: Sequence[nn.Module],
    graphs: GraphSet,
    recipe: GraphRecipe,
    device: torch.device,
    cache: str | Path | None = None,
) -> Tensor:
    """Predictions ``[G, tasks]``, the mean over the models; of classes, the probability of 1."""
    spectra = graph_spectra(graphs, recipe, device, cache)
    max_ring = getattr(models[0], "max_ring", None)
    store = GraphStore.build(graphs, spectra, max_ring=max_ring).placed(device)
    found = []
    for model in models:
        work = Work(model.to(device), recipe.precision, device)
        evaluation = Evaluation(work, store, np.arange(len(graphs)), _PREDICT_BATCH)
        outputs = evaluation.outputs()
        ordered = torch.empty_like(outputs)
        ordered[evaluation.order.cpu()] = outputs
        found.append(ordered.sigmoid() if recipe.task == "classification" else ordered)
    return torch.stack(found).mean(dim=0)


def _tested(fits: Sequence[GraphFit], recipe: GraphRecipe) -> np.ndarray:
    """Predictions for the test graphs of all runs and their targets, ``[2, graphs, tasks]``."""
    predicted, measured = (
        np.concatenate([getattr(fit, name)[:, :_SHOWN] for fit in fits]).astype(np.float32)
        for name in ("predicted", "measured")
    )
    if recipe.task == "classification":
        predicted = torch.from_numpy(predicted).sigmoid().numpy()
    return np.stack([predicted, measured])


def _figures(fits: Sequence[GraphFit], recipe: GraphRecipe) -> dict[str, Any]:
    """Test and validation figures at the epoch kept, and the test's by either rule."""

    def summaries(chosen: Sequence[Chosen], part: str) -> dict[str, Any]:
        return summary([getattr(each, part) for each in chosen])

    by_loss = [fit.by_loss for fit in fits]
    by_metric = [fit.by_metric for fit in fits]
    kept = by_loss if recipe.monitor == "loss" else by_metric
    return {
        "test": summaries(kept, "test"),
        "val": summaries(kept, "val"),
        "best_epochs": [each.epoch for each in kept],
        "test_by_loss": summaries(by_loss, "test"),
        "test_by_metric": summaries(by_metric, "test"),
    }


def _tested_on(graphs: GraphSet, splits: Sequence[Split]) -> TestedOn:
    """``"test"``, or ``"val"`` where the targets of the test part are kept secret.

    So it is with PCQM4Mv2, of which papers report the error on the validation part.
    """
    assert graphs.y is not None
    secret = any(bool(np.isnan(graphs.y[split.test]).all()) for split in splits)
    if secret:
        logger.warning(
            "%s: the test part has no targets; the test figures are the validation part's.",
            graphs.name,
        )
    return "val" if secret else "test"


def _check_parts(
    graphs: GraphSet, splits: Sequence[Split], recipe: GraphRecipe, tested_on: TestedOn
) -> None:
    """Refuse, before anything is trained, parts that the metric says nothing about."""
    assert graphs.y is not None
    assert recipe.metric is not None
    for split in splits:
        for part in ("val", tested_on):
            try:
                metric_named(recipe.metric).check(graphs.y[getattr(split, part)])
            except ConfigError as error:
                raise ConfigError(f"{graphs.name}: {error}") from error


def _purpose(model: str, recipe: GraphRecipe, split: Split, seed: int) -> str:
    """What a checkpoint's state belongs to: nothing may differ when a run goes on."""
    return json.dumps([model, asdict(recipe), split.fingerprint, seed])


def _describe(graphs: GraphSet) -> str:
    targets = ""
    if graphs.num_tasks > 1:
        targets = f"; {graphs.num_tasks} targets"
    elif graphs.task_names:
        targets = f"; the target is {graphs.task_names[0]}"
    return (
        f"{len(graphs):,} graphs of {graphs.num_nodes.mean():.1f} nodes and "
        f"{graphs.num_edges.mean():.1f} bonds on average, the largest of "
        f"{int(graphs.num_nodes.max())} nodes{targets}"
    )
