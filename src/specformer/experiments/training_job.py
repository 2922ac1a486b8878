r"""What ``specformer train`` does, from a run's configuration: the source decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specformer.baselines.graph_level import GRAPH_BASELINES
from specformer.errors import ConfigError, check_known
from specformer.experiments.graph_recipe import BaselineRecipe, GraphRecipe, graph_recipe
from specformer.experiments.node_recipe import NODE_MODELS, NodeRecipe, node_recipe
from specformer.experiments.node_recipe import refuse_idle_settings as refuse_idle_node_settings
from specformer.experiments.signal_recipe import MODELS, SignalRecipe, signal_recipe
from specformer.experiments.signal_recipe import refuse_idle_settings as refuse_idle_signal_settings
from specformer.experiments.source_kind import Kind, source_kind
from specformer.experiments.starting_point import StartingPoint
from specformer.experiments.train_filter import train_filter, usual_recipe
from specformer.experiments.train_molecules import save_graph_models, train_molecules
from specformer.experiments.train_nodes import save_models, train_nodes
from specformer.training.distributed import ALONE, Workers
from specformer.training.progress import Progress
from specformer.training.recipe import full_keys
from specformer.training.run_folder import CHECKPOINT, RunFolder

#: How many runs there are unless someone says; None for all signals, and for ten splits of nodes
#: or those that a file holds.
RUNS: dict[Kind, int | None] = {"filters": None, "nodes": None, "molecules": 1}


@dataclass(frozen=True)
class Trained:
    """What came out: a result, arrays to draw, and how to keep the models."""

    kind: Kind
    result: dict[str, Any]
    arrays: dict[str, np.ndarray]
    save: Callable[[RunFolder], None]


def full_changes(kind: Kind, model: str | None, changes: Sequence[str]) -> list[str]:
    """Changes of a recipe with whole keys, see :func:`specformer.training.recipe.full_keys`.

    Without a model, groups of all models count.

    Example:
        >>> full_changes("nodes", "gcn", ["dropout=0.2"])
        ['baseline.dropout=0.2']
    """
    if kind == "filters":
        return full_keys(SignalRecipe, changes)
    if kind == "nodes":
        unused = {None: (), "specformer": ("baseline",)}.get(model, ("model",))
        return full_keys(NodeRecipe, changes, unused)
    return full_keys(BaselineRecipe if model in GRAPH_BASELINES else GraphRecipe, changes)


def job_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of the recipe that a configuration names, with its changes.

    On signals and nodes, changes that its model has no use for are refused. A run keeps its
    settings, so that it can be repeated when recipes have changed.

    Example:
        >>> job = {"source": "cora", "model": "gcn", "recipe": None, "set": ["schedule.epochs=9"]}
        >>> job_settings(job)["schedule"]["epochs"]
        9
    """
    source, model, name = config["source"], config["model"], config["recipe"]
    kind, changes = source_kind(source), config["set"]
    if kind == "filters":
        check_known("model", MODELS, model)
        refuse_idle_signal_settings(model, changes)
        return asdict(signal_recipe(name or usual_recipe(model), changes))
    if kind == "nodes":
        check_known("model", NODE_MODELS, model)
        recipe = node_recipe(name, source, changes, model)[1]
        refuse_idle_node_settings(model, recipe, changes)
        return asdict(recipe)
    start = config.get("start")
    given = None if start is None else StartingPoint.of(start, model).settings
    return asdict(graph_recipe(name, source, changes, model, config.get("task"), given)[1])


def train_source(
    config: dict[str, Any],
    *,
    data: str | Path | None,
    cache: str | Path | None,
    device: torch.device,
    progress: Progress,
    begin: Callable[[], RunFolder],
    workers: Workers = ALONE,
) -> Trained:
    """Train as a configuration says: ``source``, ``model``, ``recipe``, ``set``, ``seed``, ….

    ``begin`` gives the run's folder once the input is found good; only the first worker calls it.
    """
    kind = source_kind(config["source"])
    common: dict[str, Any] = {
        "model": config["model"],
        "recipe_name": config["recipe"],
        "assignments": config["set"],
        "data": data,
        "cache": cache,
        "device": device,
        "seed": config["seed"],
        "progress": progress,
    }
    source, runs = config["source"], config["runs"]
    if kind == "molecules":

        def checkpoints() -> Callable[[int], Path] | None:
            if not workers.is_first:
                return lambda _: Path(CHECKPOINT)  # read and written by the first worker alone
            folder = begin().path
            return lambda run: folder / f"{Path(CHECKPOINT).stem}-{run:03d}.safetensors"

        result, learned = train_molecules(
            source,
            runs=runs,
            task=config.get("task"),
            begin=checkpoints,
            workers=workers,
            lanes=config.get("lanes", 1),
            start=config.get("start"),
            **common,
        )
        models = learned.models
        return Trained(kind, result, learned.arrays, lambda run: save_graph_models(run, models))
    if workers.size > 1:
        raise ConfigError(f"{source}: only sets of many graphs train in several processes.")
    if kind == "nodes":
        result, outcome = train_nodes(
            source, runs=runs, begin=lambda: begin().path / CHECKPOINT, **common
        )
        return Trained(kind, result, outcome.arrays, lambda run: save_models(run, outcome.models))
    result, study = train_filter(source, filter_name=config["filter"], images=runs, **common)
    begin()
    trained = [model for group in study.models.values() for model in group]
    return Trained(kind, result, study.arrays, lambda run: save_models(run, trained))
