r"""From what a person types, or from a run folder, to a job and the class that does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_type_hints

from specformer.datasets.splits import fold_count
from specformer.errors import ConfigError, RunError, brief, check_known
from specformer.tasks.graphs.graph_predict import predict_molecules
from specformer.tasks.graphs.graph_recipe import FOREST
from specformer.tasks.graphs.graph_work import GraphWork
from specformer.tasks.job import OPTIONAL, Job, Kind, Request, Workplace, read_columns, source_kind
from specformer.tasks.link_work import LinkWork, predict_links
from specformer.tasks.nodes.node_predict import predict_nodes
from specformer.tasks.nodes.node_work import NodeWork
from specformer.tasks.recipes.settings import build, full_keys
from specformer.tasks.signal_work import SignalWork
from specformer.tasks.task import PredictionRequest, Predictions, Work
from specformer.training.runs.folder import CONFIG, RunFolder

#: By the kind of their sources.
TASKS: dict[Kind, type[Work]] = {
    work.kind: work for work in (SignalWork, NodeWork, LinkWork, GraphWork)
}
_PLAIN = ("source", "model", "runs", "seed", "device", "repeat", *OPTIONAL)
#: What ``config.yaml`` may hold, and of what type; all but some of it is needed.
_TYPES: dict[str, Any] = {
    **{key: kind for key, kind in get_type_hints(Job).items() if key in _PLAIN},
    "recipe": str | None,
    "set": list,
    "settings": dict,
    "kind": str,
    "columns": dict,
}
_NEEDED = [key for key in _TYPES if key not in {*OPTIONAL, "kind", "columns"}]


_PREDICT: dict[Kind, Callable[[RunFolder, PredictionRequest, Workplace], Predictions]] = {
    "nodes": predict_nodes, "links": predict_links, "molecules": predict_molecules,
}  # fmt: skip


def predict(run: RunFolder, request: PredictionRequest, place: Workplace) -> Predictions:
    """Predictions of a finished run's models."""
    kind = run.result("kind")["kind"]
    if kind not in _PREDICT:
        raise RunError(
            f"{run.path}: a filter on signals was learned; nothing is predicted with it."
        )
    return _PREDICT[kind](run, request, place)


def kind_of(request: Request) -> Kind:
    """The kind of job that a request asks for: that of its source, or links."""
    if request.task not in (None, "regression", "classification", "links"):
        raise ConfigError(f"--task {request.task}: choose regression, classification or links.")
    kind = source_kind(request.source, request.columns)
    if request.task != "links":
        return kind
    if kind != "nodes":
        raise ConfigError(
            f"--task links applies to a single graph; {request.source} is {TASKS[kind].noun}."
        )
    return "links"


def resolve(
    request: Request,
    runs: int | None = None,
    kind: Kind | None = None,
    lanes: int | None = None,
    **options: Any,
) -> Job:
    """The job that a request means; ``options`` are the other fields of :class:`Job`.

    What does not apply to the source is refused. ``kind`` is given for data in memory; None to look
    at the source.

    Example:
        >>> job = resolve(Request("cora", "gcn", changes=("schedule.epochs=9",)))
        >>> job.kind, job.recipe, job.settings.schedule.epochs
        ('nodes', 'default', 9)
    """
    kind = kind or kind_of(request)
    task = TASKS[kind]
    refuse_foreign(kind, request.source, {**request.given, "lanes": lanes})
    check_known("model", task.models, request.model)
    if lanes and request.model == FOREST:
        raise ConfigError("--lanes: a forest's trees already grow side by side; leave it out.")
    if runs is not None and runs < 1:
        raise ConfigError(f"--runs {runs}: at least one is needed.")
    changes, columns = request.changes, request.columns
    for key in (*request.learned, *(() if columns.targets is None else ("targets",))):
        if any(change.startswith(f"{key}=") for change in changes):
            raise ConfigError(f"--{key} and --set {key}=…: give one of them.")
    if columns.targets is not None:  # the recipe keeps them
        changes = (*changes, f"targets={json.dumps(columns.targets, ensure_ascii=False)}")
        columns = replace(columns, targets=None)
    changes = full_changes(kind, request.model, changes)
    request = replace(request, changes=changes, columns=columns)
    recipe, settings = task.resolve(request)
    recipe_class, idle = task.recipe_class(request.model)
    unset = recipe_class()
    settings = replace(settings, **{key: getattr(unset, key) for key in idle})
    usual = fold_count(getattr(settings, "split", "")) or task.usual_runs(request.source)
    return Job(
        source=request.source,
        kind=kind,
        model=request.model,
        recipe=recipe,
        settings=settings,
        changes=changes,
        runs=usual if runs is None else runs,
        filter=request.filter,
        start=request.start,
        columns=columns,
        idle=idle,
        lanes=1 if lanes is None else lanes,
        **options,
    )


def full_changes(kind: Kind, model: str | None, changes: Sequence[str]) -> tuple[str, ...]:
    """Changes of a recipe with whole keys, see :func:`.full_keys`; None stands for any model."""
    recipe, unused = TASKS[kind].recipe_class(model)
    return tuple(full_keys(recipe, changes, unused))


def read_job(run: RunFolder) -> Job:
    """The job that a run's ``config.yaml`` holds."""
    config, where = run.config(), run.path / CONFIG
    if config.get("command") != "train":
        raise RunError(f"{run.path}: is not a run of `specformer train`.")
    for key in _NEEDED:
        if key not in config:
            raise RunError(f"{where}: damaged ({key} is missing).")
    for key, expected in _TYPES.items():
        if key in config and not isinstance(config[key], expected):
            raise RunError(f"{where}: damaged ({key} is {brief(config[key])}).")
    kind = config.get("kind") or source_kind(config["source"])  # earlier versions do not say
    if kind not in TASKS:
        raise RunError(f"{where}: damaged (kind is {brief(kind)}).")
    recipe, idle = TASKS[kind].recipe_class(config["model"])
    return Job(
        source=config["source"],
        kind=kind,
        model=config["model"],
        recipe=config["recipe"] or "recorded",  # earlier versions name only one that was given
        settings=build(recipe, config["settings"], str(where)),
        changes=tuple(config["set"]),
        runs=config["runs"],
        seed=config["seed"],
        device=config["device"],
        repeat=config["repeat"],
        columns=read_columns(config, str(where)),
        idle=idle,
        **{key: config.get(key, default) for key, default in OPTIONAL.items()},
    )


def refuse_foreign(kind: Kind, what: str, given: Mapping[str, object]) -> None:
    """Refuse options that a task does not have; ``what`` is the source or the run.

    Example:
        >>> refuse_foreign("nodes", "cora", {"lanes": 2})
        Traceback (most recent call last):
        specformer.errors.ConfigError: `--lanes` applies to molecules only; cora is a single graph.
    """
    for option, value in given.items():
        if not value or option in TASKS[kind].options:
            continue
        known = [task for task in TASKS.values() if option in task.options]
        if known[0].kind == "nodes":  # links have the same options: not named as well
            known = [task for task in known if task.kind != "links"]
        homes = " and ".join(task.plural for task in known)
        raise ConfigError(f"`--{option}` applies to {homes} only; {what} is {TASKS[kind].noun}.")
