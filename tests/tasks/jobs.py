"""Jobs in one call: what the command line does, without its folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from specformer.datasets import FeaturePreparation, Split
from specformer.graphs import Graph
from specformer.spectrum import AnySpectrum
from specformer.tasks.graphs.graph_fit import learn_graphs
from specformer.tasks.graphs.graph_work import GraphWork
from specformer.tasks.job import Request, Workplace
from specformer.tasks.nodes.node_fit import learn_nodes
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.resolve import predict, resolve
from specformer.tasks.task import Outcome, PredictionRequest, Predictions
from specformer.tasks.train import Trained, train
from specformer.tasks.trials import TRIALS
from specformer.tasks.tune import SearchPlan, tune
from specformer.training.runs.folder import FEATURES, RunFolder

CPU = torch.device("cpu")
_REQUEST = ("model", "recipe", "task", "metric", "start", "filter")
_PLACE = ("data", "cache", "progress", "workers", "lanes")
_PLAN = tuple(SearchPlan.__dataclass_fields__)


def placed(options: dict[str, Any]) -> Workplace:
    """Takes the options that say where a job is done."""
    here = {key: options.pop(key) for key in _PLACE if key in options}
    for key in ("data", "cache"):
        if here.get(key) is not None:
            here[key] = Path(here[key])
    return Workplace(options.pop("device", CPU), **here)


def requested(source: object, assignments: Sequence[str], options: dict[str, Any]) -> Request:
    """Takes the options that a request has."""
    asked = {key: options.pop(key) for key in _REQUEST if key in options}
    if asked.get("start") is not None:
        asked["start"] = str(asked["start"])
    return Request(str(source), changes=tuple(assignments), **asked)


def train_source(
    source: object,
    assignments: Sequence[str] = (),
    begin: Callable[[], RunFolder | None] = lambda: None,
    **options: Any,
) -> Trained:
    """Train; options are those of a request, of a workplace, ``runs`` and ``seed``."""
    request, place = requested(source, assignments, options), placed(options)
    return train(resolve(request, **options), place, begin)


def train_on(source: object, **options: Any) -> tuple[dict[str, Any], Outcome]:
    """The result of training and its outcome."""
    found = train_source(source, **options)
    return found.result, found.outcome


def tune_on(source: object, folder: Path, assignments: Sequence[str] = (), **options: Any) -> dict:
    """Search; options are those of a request, a workplace and a plan, and ``seed``."""
    request, place = requested(source, assignments, options), placed(options)
    plan = SearchPlan(**{key: options.pop(key) for key in _PLAN if key in options})
    return tune(resolve(request, **options), plan, folder, place)


def trials_of(source: object, assignments: Sequence[str] = (), **options: Any) -> Any:
    """What a search tries the settings of."""
    request, place = requested(source, assignments, options), placed(options)
    job = resolve(request, **options)
    return TRIALS[job.kind](job, place)


def predict_with(run: RunFolder, **options: Any) -> Predictions:
    """Predictions of a finished run; options are those of a request and of a workplace."""
    place = placed(options)
    return predict(run, PredictionRequest(**options), place)


def classify(
    graph: Graph,
    spectrum: AnySpectrum | None,
    splits: Sequence[Split],
    model: str,
    recipe: NodeRecipe,
    **options: Any,
) -> Outcome:
    """One model on the nodes of a graph; options are those of a workplace, and ``seed``."""
    place = placed(options)
    work = NodeWork(graph, splits, model, recipe, options.pop("seed", 0), spectrum)
    return learn_nodes(work, place, **options)


def learn(work: GraphWork, checkpoint: Path | None = None, **options: Any) -> Outcome:
    """One model on many graphs; options are those of a workplace."""
    return learn_graphs(work, placed({"device": work.device, **options}), checkpoint)


def prepared_by(outcome: Outcome) -> list[FeaturePreparation]:
    """How each run's features were prepared, as it is kept beside its model."""
    return [FeaturePreparation.from_json(beside[FEATURES]) for beside in outcome.beside]


def run_table(table: Callable[..., Any], **options: Any) -> Any:
    """One of the paper's tables; options are its own and those of a workplace."""
    return table(place=placed(options), **options)
