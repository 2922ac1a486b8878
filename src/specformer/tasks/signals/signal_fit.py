r"""Learn filters on a set of signals: settings, training, and what a report draws."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from specformer.baselines import Propagation, signal_baseline
from specformer.datasets import SignalSet, target_filter
from specformer.errors import ConfigError, check_known
from specformer.nn import Specformer
from specformer.spectrum import Spectrum
from specformer.tasks.job import run_seed
from specformer.tasks.recipes.settings import build, override, read_settings, refuse_idle, shipped
from specformer.tasks.task import parameter_count
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.summaries import summary
from specformer.training.loops.signals import SignalFit, SignalTask, fit_signals
from specformer.training.optim.early_stopping import warn_of_divergence
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.progress import Progress

#: The models of Table 1, in the paper's order.
MODELS = ("gcn", "gat", "chebnet", "gprgnn", "bernnet", "jacobiconv", "specformer")

#: Settings of Specformer alone, and settings of a schedule that only nodes have.
_OURS = ("model", "landmarks", "solve_readout")
_FILTERS = ("schedule.filter_learning_rate", "schedule.filter_weight_decay")


@dataclass(frozen=True)
class FilterModel:
    """Specformer's own settings in this task; all else is linear and unregularised."""

    hidden_channels: int = 16
    num_blocks: int = 1
    epsilon: float = 100.0
    init_std: float | None = None

    def __post_init__(self) -> None:
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks={self.num_blocks} must be at least 1.")
        if self.init_std is not None and not self.init_std > 0:
            raise ConfigError(f"init_std={self.init_std} must be positive, or empty.")


@dataclass(frozen=True)
class SignalRecipe:
    """How to learn filters.

    Args:
        description: one sentence for tables and reports.
        model: Specformer's settings.
        schedule: epochs, patience, rates.
        landmarks: attention keys while training; None for exact attention.
        solve_readout: see :mod:`specformer.training.loops.signals`.
    """

    description: str = ""
    model: FilterModel = field(default_factory=FilterModel)
    schedule: Schedule = field(default_factory=Schedule)
    landmarks: int | None = None
    solve_readout: bool = False

    def __post_init__(self) -> None:
        if self.landmarks is not None and self.landmarks < 1:
            raise ConfigError(f"landmarks={self.landmarks} must be at least 1, or empty.")


def recipe_settings() -> dict[str, dict[str, Any]]:
    """The recipes as written in ``recipes/filters.yaml``."""
    return shipped("filters.yaml")


def signal_recipe(name: str, assignments: Sequence[str] = ()) -> SignalRecipe:
    """The recipe of that name, or in that ``.yaml`` file, with ``key=value`` changes."""
    known = recipe_settings()
    if name.endswith(".yaml"):
        known[name] = read_settings(Path(name))
    check_known("recipe", known, name)
    settings: Mapping[str, Any] = override(known[name], assignments)
    return build(SignalRecipe, settings, f"recipe {name}")


def refuse_idle_settings(model: str, assignments: Sequence[str]) -> None:
    """Refuse changes of a recipe that do not apply to a model."""
    refuse_idle(assignments, _FILTERS, "all weights of a filter learn at one rate")
    if model != "specformer":
        refuse_idle(assignments, _OURS, f"it is specformer's, and {model} has a fixed size")


def signal_model(name: str, recipe: SignalRecipe) -> nn.Module:
    """A fresh model of that name for one-channel signals, with about 2,000 parameters."""
    if name == "specformer":
        settings = recipe.model
        return Specformer(
            1,
            settings.hidden_channels,
            1,
            num_layers=1,
            num_heads=1,
            sharing="small",
            num_blocks=settings.num_blocks,
            space="hidden",
            bias=False,
            epsilon=settings.epsilon,
            transformer_dropout=0.0,
            feature_dropout=0.0,
            propagation_dropout=0.0,
            init_std=settings.init_std,
        )
    return signal_baseline(name)


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
    """The outcome of learning filters.

    Rows, one per filter and contestant; arrays under the names that the report expects; the trained
    Specformers by label and run (signal-major).
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
    study = Study(arrays=task_pictures(signals, task, filters))
    for contestant in contestants:
        label, started = contestant.label, time.perf_counter()
        fits = _fit(contestant, task, signals, seed, progress)
        seconds = time.perf_counter() - started
        _record(study, signals, filters, contestant, fits, seconds)
        study.arrays.update(fit_pictures(label, signals, filters, fits))
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
    """Train all runs: at once for Specformer, whose runs share the spectrum, else in parts."""
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
        losses = fits[-1].curves.numpy()
        curves = [losses[:epochs, run] for run, epochs in enumerate(fits[-1].epochs.tolist())]
        warn_of_divergence(contestant.label + share, curves, fits[-1].layers)
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
    parameters = parameter_count(signal_model(contestant.model, contestant.recipe))
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


#: Pictures are kept of this many signals; numbers of all.
_DRAWN = 4


def task_pictures(
    signals: SignalSet, task: SignalTask, filters: Sequence[str]
) -> dict[str, np.ndarray]:
    """The signals before and after the true filters, and those filters."""
    groups = task.spectrum.distinct
    targets = task.targets().unflatten(0, (-1, len(filters)))
    arrays = {
        "filters/eigenvalues": groups.values.cpu().numpy(),
        "filters/counts": groups.counts.cpu().numpy().astype(np.int64),
        "filters/raw": signals.signals[:_DRAWN].reshape(-1, *signals.shape),
        "filters/titles": np.array(signals.titles[:_DRAWN]),
    }
    for index, name in enumerate(filters):
        arrays[f"filters/{name}/target"] = task.responses[index].cpu().numpy()
        arrays[f"filters/{name}/true"] = _images(targets[:_DRAWN, index], signals)
    return arrays


def fit_pictures(
    label: str, signals: SignalSet, filters: Sequence[str], fits: Sequence[SignalFit]
) -> dict[str, np.ndarray]:
    """One contestant's outputs for the signals, its loss by epoch and its learned filters."""
    output = torch.cat([fit.output for fit in fits]).unflatten(0, (-1, len(filters)))
    epochs = max(len(fit.curves) for fit in fits)
    curves = torch.cat(
        [pad(fit.curves, (0, 0, 0, epochs - len(fit.curves)), value=torch.nan) for fit in fits],
        dim=1,
    ).unflatten(1, (-1, len(filters)))
    response = _responses(fits)
    arrays = {}
    for index, name in enumerate(filters):
        key = f"filters/{name}/{label}"
        arrays[f"{key}/image"] = _images(output[:_DRAWN, index], signals)
        arrays[f"{key}/curve"] = curves[:, :_DRAWN, index].numpy()
        if response is not None:
            gains = response.unflatten(0, (-1, len(filters)))[:_DRAWN, index]
            arrays[f"{key}/response"] = gains.cpu().numpy()
    return arrays


@torch.no_grad()
def attention_pictures(
    label: str, spectrum: Spectrum, filters: Sequence[str], models: Sequence[Specformer]
) -> dict[str, np.ndarray]:
    """Condensed attention of one contestant's models of the first signal, one per filter."""
    arrays = {}
    for name, model in zip(filters, models, strict=False):  # runs are signal-major
        attention = model.to(spectrum.device).condensed_attention(spectrum)[0]
        arrays[f"filters/{name}/{label}/attention"] = attention.cpu().numpy()
    return arrays


@torch.no_grad()
def _responses(fits: Sequence[SignalFit]) -> Tensor | None:
    """Learned gains at the distinct eigenvalues, ``[runs, p]``, for models that have them.

    A polynomial behind a nonlinear feature map is drawn at the scale that explains its output.
    """
    gains = []
    for fit in fits:
        groups = fit.task.spectrum.distinct
        if isinstance(fit.model, Specformer):
            gains.append(fit.model.linear_response(groups.tokens)[..., 0, 0])
        elif hasattr(fit.model, "response"):
            polynomial: Tensor = fit.model.response(groups.values)[..., 0]  # type: ignore[operator]
            filtered = fit.task.apply(polynomial)
            power = filtered.square().sum(dim=-1, keepdim=True).clamp_min(1e-30)
            gains.append(polynomial * (fit.output * filtered).sum(dim=-1, keepdim=True) / power)
        else:
            return None
    return torch.cat(gains)


def _images(rows: Tensor, signals: SignalSet) -> np.ndarray:
    return np.asarray(rows.cpu().numpy().reshape(-1, *signals.shape), dtype=np.float32)
