r"""Train on molecules of one's choice: the job behind ``specformer train`` for many graphs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from specformer.datasets import GRAPH_SETS, graph_set
from specformer.errors import ConfigError, check_known
from specformer.experiments.first_training import first_job, trained_first
from specformer.experiments.graph_models import GRAPH_MODELS
from specformer.experiments.graph_recipe import chosen_targets, graph_recipe
from specformer.experiments.graph_run import GraphJob
from specformer.experiments.lanes import check_lanes
from specformer.experiments.molecules import (
    GraphOutcome,
    graph_spectra,
    graph_splits,
    learn_graphs,
    target_names,
)
from specformer.experiments.overview import in_words, of_graphs, warnings_of
from specformer.experiments.starting_point import StartingPoint, seen
from specformer.nn.pretrained import Pretrained
from specformer.training.distributed import ALONE, Workers
from specformer.training.progress import Progress
from specformer.training.run_folder import CHECKPOINT, RunFolder

logger = logging.getLogger(__name__)

#: The checkpoint of what models learn first, beside those of the runs.
_FIRST = f"{Path(CHECKPOINT).stem}-start.safetensors"
#: Keys of a result that its one row has.
_FIGURES = (
    "classes", "test", "val", "test_by_loss", "test_by_metric", "test_at_end", "test_together",
    "test_by_target",
)  # fmt: skip


def train_molecules(
    source: str,
    *,
    model: str,
    recipe_name: str | None,
    task: str | None = None,
    assignments: Sequence[str] = (),
    runs: int = 1,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    seed: int = 0,
    progress: Progress,
    workers: Workers = ALONE,
    lanes: int = 1,
    start: str | Path | None = None,
    begin: Callable[[], Callable[[int], Path] | None] = lambda: None,
) -> tuple[dict[str, Any], GraphOutcome]:
    """Train one model a run; returns the result, with ``train``'s JSON keys, and the outcome.

    ``start`` is the folder of a finished run whose models are to be trained further.
    ``begin`` is called once the input has been found good; it may name a checkpoint file a run.
    """
    check_known("model", GRAPH_MODELS, model)
    if runs < 1:
        raise ConfigError(f"--runs {runs}: at least one is needed.")
    check_lanes(lanes, workers)
    with workers.first_before_others():  # who may download and decompose
        before = StartingPoint.of(start, model) if start is not None else None
        given = before.settings if before else None
        chosen, recipe = graph_recipe(recipe_name, source, assignments, model, task, given)
        if before and recipe.start is not None:
            raise ConfigError(f"--from {start} and --set start={recipe.start}: give one of them.")
        graphs = graph_set(source, data, recipe.targets)
        graphs = chosen_targets(graphs, recipe.targets)
        recipe = recipe.settled(graphs)
        if before:
            before.check(graphs, recipe)
        splits = graph_splits(graphs, recipe, runs, seed)
        read = of_graphs(graphs, recipe, splits)
        progress.say(in_words({**read, "model": model, "recipe": chosen, "device": str(device)}))
        for warning in warnings_of(read):
            logger.warning("%s", warning)
        started = time.perf_counter()
        with progress.stage(f"{graphs.name}: spectra", 1, ""):
            spectra = graph_spectra(graphs, recipe, device, cache)
        first = first_job(
            recipe, model, graphs, splits, data=data, cache=cache, device=device, seed=seed
        )
    checkpoint, seconds_before = begin(), 0.0
    if first is not None:
        before, seconds_before = trained_first(
            first,
            progress=progress,
            workers=workers,
            checkpoint=checkpoint and checkpoint(0).with_name(_FIRST),
        )
    outcome = learn_graphs(
        GraphJob(graphs, spectra, splits, model, recipe, device, seed, before),
        progress=progress,
        workers=workers,
        lanes=lanes,
        checkpoint=checkpoint,
    )
    row = outcome.row
    named = source in GRAPH_SETS
    result = {
        "title": f"Learning {GRAPH_SETS[source].about}"
        if named
        else f"Learning from {graphs.name}",
        "dataset": graphs.name,
        "model": model,
        "recipe": chosen,
        **({"start": before.origin} if before else {}),
        "split": recipe.split,
        "runs": runs,
        "task": recipe.task,
        "metric": recipe.metric,
        **{key: row[key] for key in _FIGURES if key in row},
        "parameters": row["parameters"],
        "seconds": time.perf_counter() - started + seconds_before + outcome.seconds_before,
        "settings": asdict(recipe),
        "targets": target_names(graphs),
        "seen": before.seen_with(graphs, splits) if before else seen(graphs, splits),
        "molecules": [{**row, "recipe": chosen}],
    }
    return result, outcome


def save_graph_models(run: RunFolder, models: Sequence[torch.nn.Module]) -> None:
    """Keep every run's model in ``model/NNN``; it predicts in the targets' own units."""
    for number, model in enumerate(models):
        assert isinstance(model, Pretrained)
        model.save_pretrained(run.model_folder(number))
