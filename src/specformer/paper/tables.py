r"""The paper's tables: models on images, on single graphs and on many, by their recipes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specformer.datasets import FILTERS, GRAPH_SETS, paper_images
from specformer.errors import ConfigError, check_known
from specformer.paper.published import PCQM4MV2, TABLE_1, TABLE_2, TABLE_3, TABLE_4
from specformer.paper.table_rows import VARIANT_NAMES, at_end, by_itself, table_row
from specformer.reports.variants import array_name
from specformer.spectrum import decompose
from specformer.tasks.graphs.graph_lanes import LaneRun, train_in_lanes
from specformer.tasks.graphs.graph_models import GRAPH_MODELS
from specformer.tasks.graphs.graph_recipe import GraphRecipe, graph_recipe, graph_recipes_for
from specformer.tasks.graphs.graph_work import check_start
from specformer.tasks.job import Job, Kind, Workplace
from specformer.tasks.nodes.node_recipe import NODE_MODELS, node_model, node_recipe, recipes_for
from specformer.tasks.recipes.settings import NAMED, START, shipped
from specformer.tasks.resolve import TASKS
from specformer.tasks.signal_work import MODELS, Contestant, learn_filters, signal_recipe
from specformer.tasks.task import Work
from specformer.training.runs.checkpoint import numbered

#: The paper's small graphs, heterophilic ones first; its two large ones run only if asked for.
NODE_TABLE = ("chameleon", "squirrel", "actor", "cora", "citeseer", "photo")
#: The sets of Table 3; PCQM4Mv2, which has its own table in the paper, runs only if asked for.
GRAPH_TABLE = tuple(TABLE_3["specformer"])
#: The changes to the recipe ``paper`` in each variant of Table 4, and the sets it trains on.
VARIANTS: dict[str, tuple[str, ...]] = {
    "bare": ("model.encoding=false", "model.attention=false", "model.sharing=medium"),
    "encoding": ("model.attention=false", "model.sharing=medium"),
    "medium": ("model.sharing=medium",),
    "small": ("model.sharing=small",),
    "large": ("model.sharing=large",),
}
ABLATED: dict[Kind, tuple[str, ...]] = {
    "nodes": ("squirrel", "citeseer"),
    "molecules": ("molpcba",),
}

#: A result, and the arrays of a report.
Outcome = tuple[dict[str, Any], dict[str, np.ndarray]]


class Loaded(NamedTuple):
    """A job and its data, read and split.

    If lanes have trained it, checkpoints hold the outcome, and ``before`` is the share of its
    source's seconds that went into an earlier, stopped training.
    """

    job: Job
    work: Any
    before: float | None = None


def table1(
    *,
    images: int | Sequence[int] | None = None,
    filters: Sequence[str] = tuple(FILTERS),
    models: Sequence[str] = MODELS,
    recipes: Sequence[str] | None = None,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
) -> Outcome:
    """Run the table of filters of images, or the part of it that is asked for.

    Every model trains with the recipe ``paper``; Specformer also with each other recipe. ``images``
    is a count of images, from the first, or a list of their numbers.

    Returns the result (with ``rows``) and the arrays of a report.
    """
    check_known("filter", FILTERS, *filters)
    check_known("model", MODELS, *models)
    names = list(shipped("filters.yaml")) if recipes is None else list(recipes)
    contestants = [
        Contestant(model, name, signal_recipe(name, assignments), array_name(model, name))
        for model in models
        for name in (names if model == "specformer" else ["paper"])
    ]
    signals = paper_images(place.data)
    if images is None or isinstance(images, int):
        signals = signals.first(images)
    else:
        signals = signals.numbered(images)
    started = time.perf_counter()
    with place.progress.stage("spectrum of the grid", 1, ""):
        spectrum = decompose(
            signals.graph, device=place.device, cache=place.cache, mirrors=signals.mirrors
        )
    spectrum_seconds = time.perf_counter() - started
    entries, arrays, _ = learn_filters(
        signals, spectrum, filters, contestants, seed=seed, progress=place.progress
    )
    result = {
        "table": 1,
        "title": "Learning spectral filters (Table 1)",
        "seconds": time.perf_counter() - started,
        "spectrum_seconds": spectrum_seconds,
        "spectra": [{"name": signals.graph.name, **spectrum.summary()}],
        "recipes": {
            contestant.recipe_name: asdict(contestant.recipe) for contestant in contestants
        },
        "rows": [
            table_row(
                entry, metric, entry[metric], TABLE_1[entry["model"]][metric][entry["filter"]]
            )
            for entry in entries
            for metric in ("sse", "r2")
        ],
        "filters": entries,
    }
    return result, arrays


def table2(
    *,
    datasets: Sequence[str] = NODE_TABLE,
    models: Sequence[str] = NODE_MODELS,
    recipes: Sequence[str] | None = None,
    runs: int | None = None,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
) -> Outcome:
    """Run the table of node classification, or the part of it that is asked for.

    A model trains with each of its named recipes for a data set, or with ``default`` if it has
    none; ``recipes`` selects some of them. ``runs`` is the ``count`` of
    :func:`specformer.datasets.make_splits`.

    Returns the result (with ``rows``) and the arrays of a report.
    """
    check_known("model", NODE_MODELS, *models)
    jobs = [
        Job(dataset, "nodes", model, name, recipe, runs=runs, seed=seed)
        for dataset, model, name in _contests(datasets, models, recipes, recipes_for)
        for recipe in [node_recipe(name, dataset, assignments, model)[1]]
    ]
    # Building every model first refuses bad settings before anything is trained.
    loaded = list(_loaded(jobs, place))
    for job, work, _ in loaded:
        node_model(job.model, work.recipe, work.graph.num_features, work.outputs)
    result, arrays = _trained("nodes", loaded, place)
    rows = [row for entry in result["nodes"] for row in _node_rows(entry)]
    return {"table": 2, "title": "Node classification (Table 2)", "rows": rows, **result}, arrays


def table3(
    *,
    datasets: Sequence[str] = GRAPH_TABLE,
    models: Sequence[str] = GRAPH_MODELS,
    recipes: Sequence[str] | None = None,
    runs: int = 10,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
    begin: Callable[[], Path | None] = lambda: None,
) -> Outcome:
    """Run the table of many graphs, or the part of it that is asked for.

    Recipes are as in :func:`table2`; tasks, metrics and targets are the table's own. ``begin`` is
    called once names and settings are checked; it may return a folder for checkpoints, from which a
    stopped table continues. With such a folder, lanes train runs of all models at the same time.
    """
    check_known("model", GRAPH_MODELS, *models)
    check_known("data set", GRAPH_SETS, *datasets)
    jobs = [
        Job(dataset, "molecules", model, name, recipe, runs=runs, seed=seed)
        for dataset, model, name in _contests(datasets, models, recipes, graph_recipes_for)
        for recipe in [_table_recipe(name, dataset, assignments, model)]
    ]
    loaded, folder = _loaded(jobs, place), begin()
    if folder is not None and place.lanes > 1:
        loaded = _trained_in_lanes(loaded, place, folder)
    result, arrays = _trained("molecules", loaded, place, folder)
    rows = [row for entry in result["molecules"] for row in _graph_rows(entry)]
    title = "Learning from many graphs (Table 3)"
    return {"table": 3, "title": title, "rows": rows, **result}, arrays


def table4(
    *,
    datasets: Sequence[str] | None = None,
    recipes: Sequence[str] | None = None,
    runs: int = 10,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
    begin: Callable[[], Path | None] = lambda: None,
) -> Outcome:
    """Run the ablations: Specformer without parts of its encoder, and with each sharing.

    Each of :data:`VARIANTS`, or those named in ``recipes``, trains as in :func:`table2` or
    :func:`table3`, on all data sets of :data:`ABLATED` or on some.
    """
    known = [name for names in ABLATED.values() for name in names]
    chosen, sets = recipes or list(VARIANTS), known if datasets is None else datasets
    check_known("variant", VARIANTS, *chosen)
    check_known("data set", known, *sets)
    folder = begin()
    joined: dict[str, Any] = {"table": 4, "title": "Ablations (Table 4)", "seconds": 0.0}
    joined |= {"recipes": {}, "spectra": [], "rows": []}
    arrays: dict[str, np.ndarray] = {}
    for variant in chosen:
        common: dict[str, Any] = {
            "models": ["specformer"], "recipes": ["paper"], "runs": runs, "place": place,
            "seed": seed, "assignments": [*VARIANTS[variant], *assignments],
        }  # fmt: skip
        for kind, names in ABLATED.items():
            if not (own := [name for name in sets if name in names]):
                continue
            if kind == "nodes":
                result, found = table2(datasets=own, **common)
            else:
                inside = partial(_within, folder, variant)
                result, found = table3(datasets=own, **common, begin=inside)
            renamed = {"recipe": variant, "label": VARIANT_NAMES[variant]}
            joined.setdefault(kind, []).extend({**entry, **renamed} for entry in result[kind])
            joined["rows"] += [
                {**row, "recipe": variant, "paper": TABLE_4[variant][row["dataset"]]}
                for row in result["rows"]
            ]
            joined["recipes"].setdefault(variant, {}).update(result["recipes"]["paper"])
            joined["seconds"] += result["seconds"]
            told = {each["name"] for each in joined["spectra"]}
            joined["spectra"] += [s for s in result.get("spectra", ()) if s["name"] not in told]
            before, after = array_name("specformer", "paper"), array_name("specformer", variant)
            arrays |= {key.replace(before, after): array for key, array in found.items()}
    return joined, arrays


def _within(folder: Path | None, name: str) -> Path | None:
    """The folder of that name for the checkpoints of one variant, if there are any."""
    if folder:
        (folder / name).mkdir(exist_ok=True)
    return folder and folder / name


def _contests(
    datasets: Sequence[str],
    models: Sequence[str],
    chosen: Sequence[str] | None,
    names: Callable[[str, str], Sequence[str]],
) -> list[tuple[str, str, str]]:
    """All combinations of data set, model and recipe.

    ``names(dataset, model)`` gives the recipes; those that are not ``chosen`` are left out.
    """
    check_known("recipe", (*NAMED, "default"), *(chosen or ()))
    found = [
        (dataset, model, name)
        for dataset in datasets
        for model in models
        for name in names(dataset, model)
        if chosen is None or name in chosen
    ]
    if not found:
        raise ConfigError(
            f"none of these models has a recipe {', '.join(chosen or ())} for these data sets; "
            "choose others."
        )
    return found


def _loaded(jobs: Iterable[Job], place: Workplace) -> Iterator[Loaded]:
    """Jobs with their data, which jobs on the same source share."""
    work: Work | None = None
    source = ""
    for job in jobs:
        if work is not None and source == job.source:
            work = work.beside(job, place)
        else:
            work = TASKS[job.kind].load(job, place)
        source = job.source
        yield Loaded(job, work)


def _trained_in_lanes(loaded: Iterable[Loaded], place: Workplace, folder: Path) -> Iterator[Loaded]:
    """Jobs on many graphs, of which checkpoints hold the outcome; lanes share a source's runs.

    A job that needs a first training on another set is left as it is.
    """
    for source, group in groupby(loaded, key=lambda each: each.job.source):
        jobs, ready = list[Loaded](), None
        for job, work, _ in group:
            ready = work.with_spectra(place, ready)
            jobs.append(Loaded(job, ready))
        runs = [
            LaneRun(work, run, numbered(_stem(folder, job), run))
            for job, work, _ in jobs
            if work.first is None
            for run in range(len(work.splits))
        ]
        if not runs:
            yield from jobs
            continue
        lanes = min(place.lanes, len(runs))
        epochs = sum(each.work.recipe.schedule.epochs for each in runs)
        told = f"{source}: {len(runs)} runs in {lanes} lanes"
        with place.progress.stage(told, epochs, GRAPH_SETS[source].metric) as update:
            before = train_in_lanes(runs, lanes, update)
        yield from (each._replace(before=before / len(jobs)) for each in jobs)


def _stem(folder: Path, job: Job) -> Path:
    """The path of a job's checkpoints without the run's number and the ending."""
    return folder / f"checkpoint-{job.source}-{job.model}-{job.recipe}"


def _trained(
    kind: Kind,
    loaded: Iterable[Loaded],
    place: Workplace,
    folder: Path | None = None,
) -> Outcome:
    """Train all jobs: entries, recipes by name, data set and model, and spectra."""
    started, before = time.perf_counter(), 0.0
    used: dict[str, dict[str, Any]] = {}
    spectra: dict[tuple[str, str], dict[str, Any]] = {}
    entries: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    ready, source = None, ""
    for job, work, ahead in loaded:
        if job.source != source:
            ready, source = None, job.source  # keeps the spectra of one source in memory
        if ahead is not None:
            ready, here = work, place if work.first else replace(place, lanes=1)
        else:
            ready, here = work.with_spectra(place, ready), place
        if ready.model == "specformer" and kind == "nodes":
            told = {"name": job.source, **ready.spectrum.summary()}
            spectra[job.source, ready.recipe.spectrum_key] = told
        stem = folder and _stem(folder, job)
        outcome = ready.train(here, stem, label=array_name(job.model, job.recipe))
        recipe = ready.recipe
        if "form" in outcome.row:
            recipe = recipe.taking(outcome.row["form"])
        used.setdefault(job.recipe, {}).setdefault(job.source, {})[job.model] = asdict(recipe)
        if first := getattr(ready, "first", None):
            own = used.setdefault(START, {}).setdefault(first.graphs.name, {})
            own[job.model] = asdict(first.recipe)
        entries.append({**outcome.row, "recipe": job.recipe})
        arrays |= outcome.arrays
        before += outcome.seconds_before if ahead is None or ready.first else ahead
    seconds = time.perf_counter() - started + before
    result = {"seconds": seconds, "recipes": used, "spectra": list(spectra.values())}
    return {**result, kind: entries}, arrays


def _node_rows(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per rule: at the lowest validation loss, at the best validation metric."""
    metric, cited = entry["metric"], TABLE_2.get(entry["model"], {}).get(entry["dataset"])
    return [
        table_row(entry, metric, entry["test"], cited),
        table_row(entry, by_itself(metric), entry[f"test_by_{metric}"], cited),
    ]


def _table_recipe(name: str, dataset: str, assignments: Sequence[str], model: str) -> GraphRecipe:
    """A recipe for the table; refuses other metrics or targets than the paper's."""
    recipe = graph_recipe(name, dataset, assignments, model)[1]
    check_start(recipe, model)
    known = GRAPH_SETS[dataset]
    for key, own in (("task", known.task), ("metric", known.metric), ("targets", None)):
        value = getattr(recipe, key)
        if value not in (None, own):
            raise ConfigError(
                f"{key}={value}: the table has {known.metric} over all targets of {dataset}; use "
                "specformer train for other figures."
            )
    return recipe


def _graph_rows(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per epoch: the one kept and, if different, that of the best metric and the last."""
    metric: str = GRAPH_SETS[entry["dataset"]].metric
    others = {by_itself(metric): entry["test_by_metric"], at_end(metric): entry["test_at_end"]}
    found = {metric: entry["test"]} | {
        name: values for name, values in others.items() if values not in (None, entry["test"])
    }
    published = {**TABLE_3.get(entry["model"], {}), "pcqm4mv2": PCQM4MV2.get(entry["model"])}
    cited = published.get(entry["dataset"])
    paper = cited and cited[0]
    return [table_row(entry, name, values, paper) for name, values in found.items()]
