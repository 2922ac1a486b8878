r"""Table 2: node classification."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from specformer.datasets import Split, make_splits, node_graph
from specformer.errors import check_known
from specformer.graphs import Graph
from specformer.paper.published import TABLE_2
from specformer.paper.table_rows import by_itself, table_row
from specformer.reports.variants import array_name
from specformer.spectrum import AnySpectrum
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_fit import learn_nodes, with_best_form
from specformer.tasks.nodes.node_recipe import (
    NODE_MODELS,
    NodeRecipe,
    node_model,
    node_recipe,
    recipes_for,
)
from specformer.tasks.nodes.node_work import NodeWork, node_spectrum
from specformer.tasks.recipes.settings import contests

#: The paper's small data sets, heterophilic ones first; its two large ones run when asked for.
DATASETS = ("chameleon", "squirrel", "actor", "cora", "citeseer", "photo")


def table2(
    *,
    datasets: Sequence[str] = DATASETS,
    models: Sequence[str] = NODE_MODELS,
    recipes: Sequence[str] | None = None,
    runs: int | None = None,
    assignments: Sequence[str] = (),
    place: Workplace,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run the table, or the part of it that is asked for.

    A model trains by each of its named recipes for a data set, or by ``default`` where it has
    none; ``recipes`` keeps some of them. ``runs`` is as ``count`` of
    :func:`specformer.datasets.make_splits`.

    Returns the result (with the contract's ``rows``) and the arrays of a report.
    """
    check_known("model", NODE_MODELS, *models)
    compared = contests(
        datasets,
        models,
        recipes,
        recipes_for,
        lambda name, dataset, model: node_recipe(name, dataset, assignments, model)[1],
    )
    graphs = {name: node_graph(name, place.data) for name in compared}
    compared = {
        name: [(model, chosen, recipe.settled(graphs[name])) for model, chosen, recipe in contest]
        for name, contest in compared.items()
    }
    splits = {
        (name, model, chosen): _splits(graphs[name], model, recipe, runs, seed)
        for name, contest in compared.items()
        for model, chosen, recipe in contest
    }
    started = time.perf_counter()
    entries: list[dict[str, Any]] = []
    used: dict[str, dict[str, Any]] = {}
    spectra: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for name, graph in graphs.items():
        known: dict[str, AnySpectrum] = {}
        for model, chosen, recipe in compared[name]:
            key = recipe.spectrum_key
            if model == "specformer" and key not in known:
                with place.progress.stage(f"{name}: spectrum", 1, ""):
                    known[key] = node_spectrum(graph, recipe, place.device, place.cache)
            spectrum = known[key] if model == "specformer" else None
            own = splits[name, model, chosen]
            work, _ = with_best_form(
                NodeWork(graph, own, model, recipe, seed, spectrum), place, None
            )
            used.setdefault(chosen, {}).setdefault(name, {})[model] = asdict(work.recipe)
            outcome = learn_nodes(work, place, label=array_name(model, chosen))
            entries.append({**outcome.row, "recipe": chosen})
            arrays |= outcome.arrays
        spectra += [{"name": name, **spectrum.summary()} for spectrum in known.values()]
    result = {
        "table": 2,
        "title": "Node classification (Table 2)",
        "seconds": time.perf_counter() - started,
        "recipes": used,
        "spectra": spectra,
        "rows": [row for entry in entries for row in _table_rows(entry)],
        "nodes": entries,
    }
    return result, arrays


def _splits(
    graph: Graph, model: str, recipe: NodeRecipe, runs: int | None, seed: int
) -> list[Split]:
    """Those of a row; what it cannot have is refused here, before the first row is trained."""
    node_model(model, recipe, graph.num_features, graph.num_classes)
    return make_splits(graph, recipe.split, runs, seed)


def _table_rows(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per rule: at the lowest validation loss, at the best validation metric."""
    return [
        table_row(
            entry,
            dataset=entry["dataset"],
            metric=metric,
            values=entry[source],
            runs=entry["runs"],
            paper=TABLE_2.get(entry["model"], {}).get(entry["dataset"]),
        )
        for metric, source in (
            (entry["metric"], "test"),
            (by_itself(entry["metric"]), f"test_by_{entry['metric']}"),
        )
    ]
