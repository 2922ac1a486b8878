r"""The main job on embedded data: learn filters on photographs, classify generated graphs."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from specformer.datasets import csbm, make_splits, photographs
from specformer.experiments.node_recipe import NodeRecipe
from specformer.experiments.nodes import classify_nodes, node_spectrum
from specformer.experiments.signal_recipe import SignalRecipe
from specformer.experiments.signals import Contestant, Study, learn_filters
from specformer.spectrum import decompose
from specformer.training.progress import Progress
from specformer.training.recipe import build


def demo(
    *,
    device: torch.device,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: Progress,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run everything; returns the result and the arrays of its report."""
    started = time.perf_counter()
    text = resources.files("specformer.experiments") / "recipes" / "demo.yaml"
    settings = yaml.safe_load(text.read_text(encoding="utf-8"))
    spectra: list[dict[str, Any]] = []
    study = _filters(settings["filters"], device, seed, cache, progress, spectra)
    rows: list[dict[str, Any]] = []
    arrays = dict(study.arrays)
    nodes = settings["nodes"]
    recipe = build(NodeRecipe, nodes["recipe"], "demo.yaml: nodes: recipe")
    for homophily in nodes["homophily"]:
        graph = csbm(homophily, num_nodes=nodes["num_nodes"], seed=seed)
        splits = make_splits(graph, recipe.split, nodes["splits"], seed)
        spectrum = node_spectrum(graph, recipe, device, cache)
        spectra.append({"name": graph.name, **spectrum.summary()})
        for model in nodes["models"]:
            outcome = classify_nodes(
                graph, spectrum, splits, model, recipe, device=device, seed=seed, progress=progress
            )
            rows.append(outcome.row)
            arrays |= outcome.arrays
    result = {
        "title": "Specformer on embedded data",
        "seconds": time.perf_counter() - started,
        "spectra": spectra,
        "filters": study.rows,
        "nodes": rows,
    }
    return result, arrays


def _filters(
    settings: dict[str, Any],
    device: torch.device,
    seed: int,
    cache: str | Path | None,
    progress: Progress,
    spectra: list[dict[str, Any]],
) -> Study:
    signals = photographs(settings["size"], settings["images"])
    spectrum = decompose(signals.graph, device=device, cache=cache, mirrors=signals.mirrors)
    spectra.append({"name": signals.graph.name, **spectrum.summary()})
    ours = build(SignalRecipe, settings["specformer"], "demo.yaml: filters: specformer")
    theirs = build(SignalRecipe, settings["baselines"], "demo.yaml: filters: baselines")
    contestants = [
        Contestant("specformer", "demo", ours, "specformer"),
        Contestant("gprgnn", "demo", theirs, "gprgnn"),
        Contestant("bernnet", "demo", theirs, "bernnet"),
    ]
    return learn_filters(
        signals, spectrum, settings["names"], contestants, seed=seed, progress=progress
    )
