r"""Learn filters on a set of signals with several models, and keep what a report draws."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from specformer.baselines import Propagation
from specformer.datasets import SignalSet, target_filter
from specformer.nn import Specformer
from specformer.spectrum import Spectrum
from specformer.tasks.run_seed import run_seed
from specformer.tasks.signals.pictures import (
    attention_pictures,
    fit_pictures,
    task_pictures,
)
from specformer.tasks.signals.recipe import SignalRecipe, signal_model
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.summaries import summary
from specformer.training.loops.signals import SignalFit, SignalTask, fit_signals
from specformer.training.runs.progress import Progress

#: Baselines hold activations for every node: this many runs of 10,000 nodes take a few GB.
_BASELINE_RUNS = 50


@dataclass(frozen=True)
class Contestant:
    """A model, the recipe it is trained by, and the name its arrays are kept under."""

    model: str
    recipe_name: str
    recipe: SignalRecipe
    label: str


@dataclass(frozen=True)
class Study:
    """What learning filters gave.

    Rows, one per filter and contestant; arrays to draw, under the names the report expects; the
    trained Specformers by label and run (signal-major).
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    models: dict[str, list[Specformer]] = field(default_factory=dict)


def learn_filters(
    signals: SignalSet,
    spectrum: Spectrum,
    filters: Sequence[str],
    contestants: Sequence[Contestant],
    *,
    seed: int,
    progress: Progress,
) -> Study:
    """Train every contestant on every signal and filter, on the spectrum's device."""
    device = spectrum.device
    responses = [target_filter(name)(spectrum.distinct.values) for name in filters]
    task = SignalTask(
        spectrum=spectrum,
        signals=torch.as_tensor(signals.signals).to(device),
        responses=torch.stack(responses),
        mask=torch.as_tensor(signals.mask).to(device),
    )
    study = Study()
    study.arrays.update(task_pictures(signals, task, filters))
    for contestant in contestants:
        label, started = contestant.label, time.perf_counter()
        fits = _fit(contestant, task, signals, seed, progress)
        seconds = time.perf_counter() - started
        _record(study, signals, filters, contestant, fits, seconds)
        study.arrays.update(fit_pictures(label, signals, task, filters, fits))
        if contestant.model == "specformer":
            template = signal_model("specformer", contestant.recipe)
            assert isinstance(template, Specformer)
            trained = [unstack(fits[0].model, run, template) for run in range(task.runs)]
            study.models[label] = trained
            study.arrays.update(attention_pictures(label, spectrum, filters, trained))
    return study


def _fit(
    contestant: Contestant, task: SignalTask, signals: SignalSet, seed: int, progress: Progress
) -> list[SignalFit]:
    """All runs: at once for Specformer, whose runs share the spectrum, else in parts."""
    recipe = contestant.recipe
    ours = contestant.model == "specformer"
    step = len(task.signals) if ours else max(1, _BASELINE_RUNS // task.num_filters)
    starts = range(0, len(task.signals), step)
    operator: object = task.spectrum
    if not ours:
        operator = Propagation(signals.graph.adjacency, device=task.spectrum.device)
    fits = []
    for number, start in enumerate(starts):
        part = replace(task, signals=task.signals[start : start + step])
        fresh = []
        for run in range(part.runs):
            # A run's seed depends on its signal and filter alone, not on how runs are grouped.
            torch.manual_seed(run_seed(seed, start * task.num_filters + run))
            fresh.append(signal_model(contestant.model, recipe))
        share = f" {number + 1}/{len(starts)}" if len(starts) > 1 else ""
        with progress.stage(contestant.label + share, recipe.schedule.epochs, "loss") as update:
            fits.append(
                fit_signals(
                    fresh,
                    part,
                    operator,
                    recipe.schedule,
                    landmarks=recipe.landmarks if ours else None,
                    solve_readout=recipe.solve_readout and ours,
                    on_progress=update,
                )
            )
    return fits


def _record(
    study: Study,
    signals: SignalSet,
    filters: Sequence[str],
    contestant: Contestant,
    fits: Sequence[SignalFit],
    seconds: float,
) -> None:
    per_filter = {
        name: torch.cat([getattr(fit, name) for fit in fits]).cpu().view(-1, len(filters)).mT
        for name in ("sse", "r2", "epochs")
    }
    parameters = sum(
        parameter.numel()
        for parameter in signal_model(contestant.model, contestant.recipe).parameters()
    )
    for index, name in enumerate(filters):
        study.rows.append(
            {
                "filter": name,
                "formula": target_filter(name).formula,
                "model": contestant.model,
                "recipe": contestant.recipe_name,
                "images": len(signals.signals),
                "sse": summary(per_filter["sse"][index].tolist()),
                "r2": summary(per_filter["r2"][index].tolist()),
                "parameters": parameters,
                "epochs": float(per_filter["epochs"][index].double().mean()),
                "seconds": seconds / len(filters),
            }
        )
