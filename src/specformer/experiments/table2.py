r"""Table 2: node classification."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specformer.datasets import Split, make_splits, node_graph
from specformer.errors import check_known
from specformer.experiments.node_recipe import (
    NODE_MODELS,
    NodeRecipe,
    node_model,
    node_recipe,
    recipes_for,
)
from specformer.experiments.node_run import node_spectrum
from specformer.experiments.nodes import classify_nodes
from specformer.experiments.paper import TABLE_2
from specformer.experiments.recipe_book import contests
from specformer.experiments.tables import by_itself, table_row
from specformer.graphs import Graph
from specformer.reports.contestants import array_name
from specformer.spectrum import AnySpectrum
from specformer.training.progress import Progress

#: The paper's small data sets, heterophilic ones first; its two large ones run when asked for.
DATASETS = ("chameleon", "squirrel", "actor", "cora", "citeseer", "photo")


def table2(
    *,
    datasets: Sequence[str] = DATASETS,
    models: Sequence[str] = NODE_MODELS,
    recipes: Sequence[str] | None = None,
    runs: int | None = None,
    assignments: Sequence[str] = (),
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    seed: int = 0,
    progress: Progress,
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
    graphs = {name: node_graph(name, data) for name in compared}
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
            used.setdefault(chosen, {}).setdefault(name, {})[model] = asdict(recipe)
            key = recipe.spectrum_key
            if model == "specformer" and key not in known:
                known[key] = node_spectrum(graph, recipe, device, cache)
            outcome = classify_nodes(
                graph,
                known[key] if model == "specformer" else None,
                splits[name, model, chosen],
                model,
                recipe,
                device=device,
                seed=seed,
                progress=progress,
                label=array_name(model, chosen),
                cache=cache,
            )
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
    """One row a selection rule: at the lowest validation loss, at the highest accuracy."""
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
            ("accuracy", "test"),
            (by_itself("accuracy"), "test_by_accuracy"),
        )
    ]
