r"""Table 1: recovering five filters from filtered images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from specformer.datasets import FILTERS, paper_images
from specformer.errors import check_known
from specformer.paper.published import TABLE_1
from specformer.paper.table_rows import table_row
from specformer.reports.variants import array_name
from specformer.spectrum import decompose
from specformer.tasks.job import Workplace
from specformer.tasks.recipes.settings import shipped
from specformer.tasks.signals.signal_work import MODELS, Contestant, learn_filters, signal_recipe


def table1(
    *,
    images: int | Sequence[int] | None = None,
    filters: Sequence[str] = tuple(FILTERS),
    models: Sequence[str] = MODELS,
    recipes: Sequence[str] | None = None,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run the table, or the part of it that is asked for.

    Every model trains with the recipe ``paper``; Specformer also with each other recipe. ``images``
    is a count of images, from the first, or a list of their numbers.

    Returns the result (with ``rows``) and the arrays of a report.
    """
    check_known("filter", FILTERS, *filters)
    names = list(shipped("filters.yaml")) if recipes is None else list(recipes)
    contestants = _contestants(models, names, assignments)
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
        "rows": [row for entry in entries for row in _table_rows(entry)],
        "filters": entries,
    }
    return result, arrays


def _contestants(
    models: Sequence[str], recipes: Sequence[str], assignments: Sequence[str]
) -> list[Contestant]:
    check_known("model", MODELS, *models)
    chosen = []
    for model in models:
        for recipe in recipes if model == "specformer" else ["paper"]:
            label = array_name(model, recipe)
            chosen.append(Contestant(model, recipe, signal_recipe(recipe, assignments), label))
    return chosen


def _table_rows(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per metric."""
    cited = TABLE_1[entry["model"]]
    return [
        table_row(entry, metric, entry[metric], cited[metric][entry["filter"]])
        for metric in ("sse", "r2")
    ]
