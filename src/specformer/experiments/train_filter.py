r"""Learn one filter on signals of one's choice: the job behind ``specformer train``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from specformer.datasets import SignalSet, image_signal
from specformer.datasets.signal_registry import SIGNAL_SETS, named_signals
from specformer.errors import check_known
from specformer.experiments.overview import in_words, of_signals
from specformer.experiments.signal_recipe import MODELS, signal_recipe
from specformer.experiments.signals import Contestant, Study, learn_filters
from specformer.spectrum import decompose
from specformer.training.progress import Progress

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif")


def is_signal_source(source: str) -> bool:
    """Whether ``source`` names signals rather than a graph with labels."""
    return source in SIGNAL_SETS or source.lower().endswith(IMAGE_SUFFIXES)


def signal_source(source: str, data: str | Path | None = None) -> SignalSet:
    """The signals of that name, or those of an image file."""
    return named_signals(source, data) if source in SIGNAL_SETS else image_signal(source)


def usual_recipe(model: str) -> str:
    """The recipe of a model that none was named for."""
    return "projected" if model == "specformer" else "paper"


def train_filter(
    source: str,
    *,
    filter_name: str,
    model: str,
    recipe_name: str | None,
    assignments: Sequence[str] = (),
    images: int | None = None,
    data: str | Path | None = None,
    cache: str | Path | None = None,
    device: torch.device,
    seed: int = 0,
    progress: Progress,
) -> tuple[dict[str, Any], Study]:
    """Train one model a signal; returns the result, with ``train``'s JSON keys, and the study.

    Without a recipe's name, it is the :func:`usual_recipe`.
    """
    check_known("model", MODELS, model)
    recipe_name = recipe_name or usual_recipe(model)
    recipe = signal_recipe(recipe_name, assignments)
    signals = signal_source(source, data).first(images)
    read = of_signals(signals)
    progress.say(in_words({**read, "model": model, "recipe": recipe_name, "device": str(device)}))
    started = time.perf_counter()
    with progress.stage(f"{signals.name}: spectrum", 1, ""):
        spectrum = decompose(signals.graph, device=device, cache=cache, mirrors=signals.mirrors)
    contestant = Contestant(model, recipe_name, recipe, model)
    study = learn_filters(
        signals, spectrum, [filter_name], [contestant], seed=seed, progress=progress
    )
    entry = study.rows[0]
    result = {
        "title": f"The {filter_name} filter on {signals.name}",
        "dataset": signals.name,
        "filter": filter_name,
        "model": model,
        "recipe": recipe_name,
        "runs": len(signals.signals),
        "metric": "sse",
        # A fit, not a generalisation: the same pixels train and test, as in the paper's Table 1.
        "test": entry["sse"],
        "val": entry["sse"],
        "r2": entry["r2"],
        "parameters": entry["parameters"],
        "seconds": time.perf_counter() - started,
        "settings": asdict(recipe),
        "spectra": [{"name": signals.graph.name, **spectrum.summary()}],
        "filters": study.rows,
    }
    return result, study
