r"""Table 3: learning from many small graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from specformer.datasets import GRAPH_SETS, graph_set
from specformer.errors import ConfigError, check_known
from specformer.paper.published import PCQM4MV2, TABLE_3
from specformer.paper.table_rows import at_end, by_itself, table_row
from specformer.reports.variants import array_name
from specformer.spectrum import ManySpectra
from specformer.tasks.graphs.graph_learning import GraphLearning, check_start, first_work
from specformer.tasks.graphs.graph_models import GRAPH_MODELS
from specformer.tasks.graphs.graph_recipe import GraphRecipe, graph_recipe, graph_recipes_for
from specformer.tasks.graphs.graph_work import GraphWork, check_lanes, graph_spectra, graph_splits
from specformer.tasks.job import Workplace
from specformer.tasks.recipes.settings import START, contests

#: Those of the table; the paper has a table of its own for PCQM4Mv2, which runs when asked for.
DATASETS = tuple(TABLE_3["specformer"])


def table3(
    *,
    datasets: Sequence[str] = DATASETS,
    models: Sequence[str] = GRAPH_MODELS,
    recipes: Sequence[str] | None = None,
    runs: int = 10,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
    begin: Callable[[], Path | None] = lambda: None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run the table, or the part of it that is asked for.

    A model trains by each of its named recipes for a data set, or by ``default`` where it has
    none; ``recipes`` keeps some of them. Of its runs ``lanes`` train at a time. ``begin`` is called
    once names and settings are found good; it may give a folder for checkpoints, from which a table
    that was stopped goes on. Tasks, metrics and targets are the table's own.

    Returns the result and the arrays of a report.
    """
    check_known("model", GRAPH_MODELS, *models)
    check_known("data set", GRAPH_SETS, *datasets)
    check_lanes(place.lanes)
    compared = contests(
        datasets,
        models,
        recipes,
        graph_recipes_for,
        lambda name, dataset, model: _table_recipe(name, dataset, assignments, model),
    )
    folder = begin()
    started = time.perf_counter()
    entries: list[dict[str, Any]] = []
    used: dict[str, dict[str, Any]] = {}
    arrays: dict[str, np.ndarray] = {}
    before = 0.0
    task = GraphLearning()
    for name, contestants in compared.items():
        graphs = graph_set(name, place.data)
        decomposed: dict[str, ManySpectra] = {}
        for model, chosen, unsettled in contestants:
            recipe = unsettled.settled(graphs)
            used.setdefault(chosen, {}).setdefault(name, {})[model] = asdict(recipe)
            if recipe.matrix not in decomposed:
                found = graph_spectra(graphs, recipe, place.device, place.cache)
                decomposed[recipe.matrix] = found
            splits, spectra = graph_splits(graphs, recipe, runs, seed), decomposed[recipe.matrix]
            work = GraphWork(graphs, splits, model, recipe, seed, place.device, spectra)
            first = first_work(work, place)
            if first is not None:
                own = used.setdefault(START, {}).setdefault(first.graphs.name, {})
                own[model] = asdict(first.recipe)
                work = replace(work, first=task.with_spectra(first, place))
            stem = folder and folder / f"checkpoint-{name}-{model}-{chosen}"
            outcome = task.fit(work, place, stem, label=array_name(model, chosen))
            entries.append({**outcome.row, "recipe": chosen})
            arrays |= outcome.arrays
            before += outcome.seconds_before
    result = {
        "table": 3,
        "title": "Learning from many graphs (Table 3)",
        "seconds": time.perf_counter() - started + before,
        "recipes": used,
        "rows": [row for entry in entries for row in _table_rows(entry)],
        "molecules": entries,
    }
    return result, arrays


def _table_recipe(name: str, dataset: str, assignments: Sequence[str], model: str) -> GraphRecipe:
    """A recipe that can be trained, unless it would put another figure beside the paper's."""
    recipe = graph_recipe(name, dataset, assignments, model)[1]
    check_start(recipe, model)
    known = GRAPH_SETS[dataset]
    for key, own in (("task", known.task), ("metric", known.metric), ("targets", None)):
        value = getattr(recipe, key)
        if value not in (None, own):
            raise ConfigError(
                f"{key}={value}: the table has {known.metric} over all targets of {dataset}; other "
                "figures are for specformer train."
            )
    return recipe


def _table_rows(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """One row an epoch: the one kept and, if others, that of the best metric and the last."""
    metric: str = GRAPH_SETS[entry["dataset"]].metric
    others = {by_itself(metric): entry["test_by_metric"], at_end(metric): entry["test_at_end"]}
    found = {metric: entry["test"]} | {
        name: values for name, values in others.items() if values not in (None, entry["test"])
    }
    return [
        table_row(
            entry,
            dataset=entry["dataset"],
            metric=name,
            values=values,
            runs=entry["runs"],
            paper=_papers(entry["model"], entry["dataset"]),
        )
        for name, values in found.items()
    ]


def _papers(model: str, dataset: str) -> float | None:
    """The paper's figure, if it has one."""
    figures = (
        PCQM4MV2
        if dataset == "pcqm4mv2"
        else {name: known[dataset] for name, known in TABLE_3.items() if dataset in known}
    )
    return figures[model][0] if model in figures else None
