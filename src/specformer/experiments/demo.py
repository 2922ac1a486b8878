r"""The main job on embedded data: learn filters on photographs, classify generated graphs."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

from specformer.baselines import GCN, GPRGNN, Propagation
from specformer.datasets import csbm, photographs, random_60_20_20
from specformer.experiments.signal_recipe import SignalRecipe
from specformer.experiments.signals import Contestant, Study, learn_filters
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.spectrum import decompose
from specformer.training.metrics import summary
from specformer.training.node_loop import NodeTask, fit_nodes
from specformer.training.progress import Progress
from specformer.training.recipe import build
from specformer.training.schedule import Schedule
from specformer.training.stacking import unstack


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
    for name, homophily in settings["nodes"]["homophily"].items():
        graph = csbm(homophily, num_nodes=settings["nodes"]["num_nodes"], seed=seed)
        _nodes(name, graph, settings["nodes"], device, seed, cache, progress, spectra, rows, arrays)
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


def _nodes(
    name: str,
    graph: Graph,
    settings: dict[str, Any],
    device: torch.device,
    seed: int,
    cache: str | Path | None,
    progress: Progress,
    spectra: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    arrays: dict[str, np.ndarray],
) -> None:
    assert isinstance(graph.x, np.ndarray)
    assert graph.y is not None
    schedule = build(Schedule, settings["schedule"], "demo.yaml: nodes: schedule")
    splits = [random_60_20_20(graph.y, seed + split) for split in range(settings["splits"])]
    task = NodeTask.from_splits(graph.x, graph.y, splits, device)
    spectrum = decompose(graph, device=device, cache=cache)
    spectra.append({"name": name, **spectrum.summary()})
    arrays[f"nodes/{name}/eigenvalues"] = spectrum.eigenvalues.cpu().numpy()
    propagation = Propagation(graph.adjacency, device=device)
    for model, operator in (
        ("specformer", spectrum),
        ("gcn", propagation),
        ("gprgnn", propagation),
    ):
        started = time.perf_counter()
        fresh = []
        for run in range(task.runs):
            torch.manual_seed(100_003 * seed + run)
            fresh.append(_node_model(model, graph))
        with progress.stage(f"{name}: {model}", schedule.epochs, "accuracy") as update:
            fit = fit_nodes(fresh, task, operator, schedule, on_progress=update)
        arrays[f"nodes/{name}/{model}/curve"] = fit.curves.cpu().numpy()
        if model == "specformer":
            first = unstack(fit.model, 0, fresh[0]).to(device).eval()
            assert isinstance(first, Specformer)
            with torch.no_grad():
                arrays[f"nodes/{name}/specformer/response"] = (
                    first.responses(spectrum)[0].cpu().numpy()
                )
                arrays[f"nodes/{name}/attention"] = (
                    first.condensed_attention(spectrum)[0].cpu().numpy()
                )
        rows.append(
            {
                "dataset": name,
                "description": _describe(graph),
                "model": model,
                "runs": task.runs,
                "splits": [split.fingerprint for split in splits],
                "test": summary(fit.by_loss.test.tolist()),
                "val": summary(fit.by_loss.val.tolist()),
                "test_by_accuracy": summary(fit.by_accuracy.test.tolist()),
                "parameters": sum(parameter.numel() for parameter in fresh[0].parameters()),
                "epochs": float(fit.epochs.double().mean()),
                "seconds": time.perf_counter() - started,
            }
        )


def _node_model(name: str, graph: Graph) -> nn.Module:
    features, classes = graph.num_features, graph.num_classes
    if name == "gcn":
        return GCN(features, 64, classes, dropout=0.5)
    if name == "gprgnn":
        return GPRGNN(features, 64, classes, dropout=0.5)
    return Specformer(
        features,
        32,
        classes,
        num_layers=2,
        num_heads=2,
        sharing="medium",
        feature_dropout=0.5,
        propagation_dropout=0.2,
        transformer_dropout=0.1,
    )


def _describe(graph: Graph) -> str:
    assert graph.y is not None
    rows, columns = graph.adjacency.nonzero()
    same = float(np.mean(graph.y[rows] == graph.y[columns]))
    return (
        f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, "
        f"{same:.0%} of them between nodes of one class"
    )
