r"""Learn filters on a set of signals: settings, data, training, and what a report draws."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from specformer.baselines import Propagation, signal_baseline
from specformer.datasets import SignalSet, image_signal, target_filter
from specformer.datasets.signals import SIGNAL_SETS, named_signals
from specformer.errors import ConfigError, check_known
from specformer.nn import Specformer
from specformer.spectrum import Spectrum, decompose
from specformer.tasks.job import Job, Kind, Request, Workplace, run_seed
from specformer.tasks.recipes.settings import build, override, read_settings, refuse_idle, shipped
from specformer.tasks.task import Outcome, Work, parameter_count
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
        if self.landmarks is not None and self.landmarks < 2:
            raise ConfigError(f"landmarks={self.landmarks} must be at least 2, or empty.")


def signal_recipe(name: str, assignments: Sequence[str] = ()) -> SignalRecipe:
    """The recipe of that name, or in that ``.yaml`` file, with ``key=value`` changes."""
    known = shipped("filters.yaml")
    if name.endswith(".yaml"):
        known[name] = read_settings(Path(name))
    check_known("recipe", known, name)
    return build(SignalRecipe, override(known[name], assignments), f"recipe {name}")


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
class SignalWork(Work):
    """Signals, the model and the filter to learn; ``spectrum`` is None until it is computed.

    There are neither validation data, so that settings are not searched, nor checkpoints, as
    training takes seconds.
    """

    kind: ClassVar[Kind] = "filters"
    noun, plural = "a set of signals", "signals"
    models = MODELS
    options: ClassVar[frozenset[str]] = frozenset({"filter"})

    signals: SignalSet
    contestant: Contestant
    filter_name: str
    seed: int
    spectrum: Spectrum | None = None

    @classmethod
    def recipe_class(cls, model: str | None) -> tuple[type, Sequence[str]]:  # noqa: ARG003
        return SignalRecipe, ()

    @classmethod
    def resolve(cls, request: Request) -> tuple[str, SignalRecipe]:
        model = request.model
        refuse_idle(request.changes, _FILTERS, "all weights of a filter learn at one rate")
        if model != "specformer":
            told = f"it is specformer's, and {model} has a fixed size"
            refuse_idle(request.changes, _OURS, told)
        chosen = request.recipe or ("projected" if model == "specformer" else "paper")
        return chosen, signal_recipe(chosen, request.changes)

    @classmethod
    def load(cls, job: Job, place: Workplace) -> Self:
        named = job.source in SIGNAL_SETS
        signals = named_signals(job.source, place.data) if named else image_signal(job.source)
        contestant = Contestant(job.model, job.recipe, job.settings, job.model)
        work = cls(signals.first(job.runs), contestant, job.filter or "comb", job.seed)
        target_filter(work.filter_name)  # refuses unknown names, before the spectrum
        signal_model(job.model, job.settings)  # and settings that no model can have
        return work

    def overview(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.signals.name,
            "signals": len(self.signals.signals),
            "nodes": self.signals.graph.num_nodes,
            "edges": self.signals.graph.num_edges,
            "shape": list(self.signals.shape),
        }

    def with_spectra(self, place: Workplace, beside: Self | None = None) -> Self:  # noqa: ARG002
        graph, mirrors = self.signals.graph, self.signals.mirrors
        with place.progress.stage(f"{self.signals.name}: spectrum", 1, ""):
            spectrum = decompose(graph, device=place.device, cache=place.cache, mirrors=mirrors)
        return replace(self, spectrum=spectrum)

    def train(
        self,
        place: Workplace,
        checkpoint: Path | None,  # noqa: ARG002
        label: str | None = None,  # noqa: ARG002
    ) -> Outcome:
        assert self.spectrum is not None
        rows, arrays, models = learn_filters(
            self.signals,
            self.spectrum,
            [self.filter_name],
            [self.contestant],
            seed=self.seed,
            progress=place.progress,
        )
        return Outcome(rows[0], arrays, models)

    def summarise(self, outcome: Outcome) -> dict[str, Any]:
        signals, row = self.signals, outcome.row
        assert self.spectrum is not None
        return {
            "title": f"The {self.filter_name} filter on {signals.name}",
            "dataset": signals.name,
            "filter": self.filter_name,
            "runs": len(signals.signals),
            "metric": "sse",
            # The same pixels train and test, as in Table 1: this measures the fit alone.
            "test": row["sse"],
            "val": row["sse"],
            "r2": row["r2"],
            "settings": asdict(self.contestant.recipe),
            "spectra": [{"name": signals.graph.name, **self.spectrum.summary()}],
            "filters": [row],
        }


def learn_filters(
    signals: SignalSet,
    spectrum: Spectrum,
    filters: Sequence[str],
    contestants: Sequence[Contestant],
    *,
    seed: int,
    progress: Progress,
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray], list[Specformer]]:
    """Train every contestant on every signal and filter, on the spectrum's device.

    Returns rows, one per filter and contestant; arrays under the names that the report expects; and
    the trained Specformers of each contestant, by signal and then by filter.
    """
    device = spectrum.device
    responses = [target_filter(name)(spectrum.distinct.values) for name in filters]
    task = SignalTask(
        spectrum=spectrum,
        signals=torch.as_tensor(signals.signals).to(device),
        responses=torch.stack(responses),
        mask=torch.as_tensor(signals.mask).to(device),
    )
    rows: list[dict[str, Any]] = []
    models: list[Specformer] = []
    arrays = task_pictures(signals, task, filters)
    for contestant in contestants:
        started = time.perf_counter()
        fits = _fit(contestant, task, signals, seed, progress)
        seconds = time.perf_counter() - started
        fresh = signal_model(contestant.model, contestant.recipe)
        sse, r2, epochs = (
            torch.cat([getattr(fit, name) for fit in fits]).cpu().view(-1, len(filters)).mT
            for name in ("sse", "r2", "epochs")
        )
        rows += [
            {
                "filter": name,
                "formula": target_filter(name).formula,
                "model": contestant.model,
                "recipe": contestant.recipe_name,
                "images": len(signals.signals),
                "sse": summary(sse[index].tolist()),
                "r2": summary(r2[index].tolist()),
                "parameters": parameter_count(fresh),
                "epochs": float(epochs[index].double().mean()),
                "seconds": seconds / len(filters),
            }
            for index, name in enumerate(filters)
        ]
        arrays |= fit_pictures(contestant.label, signals, filters, fits)
        if isinstance(fresh, Specformer):
            trained = [unstack(fits[0].model, run, fresh) for run in range(task.runs)]
            models += trained
            for name, model in zip(filters, trained, strict=False):  # those of the first signal
                with torch.no_grad():
                    attention = model.to(device).condensed_attention(spectrum)[0]
                arrays[f"filters/{name}/{contestant.label}/attention"] = attention.cpu().numpy()
    return rows, arrays, models


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
