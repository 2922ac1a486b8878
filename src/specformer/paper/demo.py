r"""The demo on embedded data: learn filters on photographs, classify generated graphs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from specformer.datasets import csbm, make_splits, photographs
from specformer.spectrum import decompose
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_fit import learn_nodes
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.nodes.node_work import NodeWork, node_spectrum
from specformer.tasks.recipes.settings import build, shipped
from specformer.tasks.signal_work import Contestant, SignalRecipe, learn_filters


def demo(place: Workplace, seed: int = 0) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run the demo; returns the result and the arrays of its report."""
    started = time.perf_counter()
    settings = shipped("demo.yaml")
    filters, nodes = settings["filters"], settings["nodes"]
    signals = photographs(filters["size"], filters["images"])
    grid = decompose(signals.graph, device=place.device, mirrors=signals.mirrors)
    ours = build(SignalRecipe, filters["specformer"], "demo.yaml: filters: specformer")
    theirs = build(SignalRecipe, filters["baselines"], "demo.yaml: filters: baselines")
    recipes = {"specformer": ours, "gprgnn": theirs, "bernnet": theirs}
    contestants = [Contestant(model, "demo", own, model) for model, own in recipes.items()]
    learned, arrays, _ = learn_filters(
        signals, grid, filters["names"], contestants, seed=seed, progress=place.progress
    )
    spectra = [{"name": signals.graph.name, **grid.summary()}]
    rows = []
    recipe = build(NodeRecipe, nodes["recipe"], "demo.yaml: nodes: recipe")
    for homophily in nodes["homophily"]:
        graph = csbm(homophily, num_nodes=nodes["num_nodes"], seed=seed)
        own = recipe.settled(graph)
        splits = make_splits(graph, own.split, nodes["splits"], seed)
        spectrum = node_spectrum(graph, recipe, replace(place, cache=None))
        spectra.append({"name": graph.name, **spectrum.summary()})
        for model in nodes["models"]:
            outcome = learn_nodes(NodeWork(graph, splits, model, own, seed, spectrum), place)
            rows.append(outcome.row)
            arrays |= outcome.arrays
    result = {
        "title": "Specformer on embedded data",
        "seconds": time.perf_counter() - started,
        "spectra": spectra,
        "filters": learned,
        "nodes": rows,
    }
    return result, arrays
