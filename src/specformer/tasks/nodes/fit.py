r"""Learn on the nodes of one graph with one model, every split a run."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specformer.baselines import Propagation
from specformer.datasets import FeaturePreparation, Split
from specformer.datasets.features import say_preparation
from specformer.errors import ConfigError
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Spectrum
from specformer.tasks.nodes.insights import node_insights
from specformer.tasks.nodes.recipe import NodeRecipe
from specformer.tasks.nodes.work import (
    NodeWork,
    fit_task,
    fresh_models,
    node_features,
    node_landmarks,
    node_operator,
    node_task,
)
from specformer.tasks.task import Outcome
from specformer.tasks.workplace import Workplace
from specformer.training.engine.precision import matmul_precision
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.losses import Loss, Scale
from specformer.training.evaluation.summaries import confusion, summary
from specformer.training.loops.nodes import NodeFit, NodeTask
from specformer.training.optim.early_stopping import refuse_lost, warn_of_divergence
from specformer.training.runs.checkpoint import Checkpoint
from specformer.training.runs.folder import FEATURES, TARGETS

logger = logging.getLogger(__name__)

#: Above this much relative error a model's interpolated filters are not its own any more.
_LARGE_ERROR = 0.05
#: Targets whose predictions a report shows.
_SHOWN = 4
#: Eigenvalues drawn in pictures of a spectrum that was not decomposed.
_DRAWN = 2000


@dataclass(frozen=True)
class Fitted:
    """Trained models as one, and what they were trained on."""

    fit: NodeFit
    fresh: Sequence[nn.Module]
    task: NodeTask
    operator: AnySpectrum | Propagation
    landmarks: Keys | None


def fit_nodes_of(
    work: NodeWork, place: Workplace, checkpoint: Path | None = None, label: str | None = None
) -> Fitted:
    """Train one model per split, all at once; arguments as of :func:`learn_nodes`."""
    graph, splits, model, recipe = work.graph, work.splits, work.model, work.recipe
    device = place.device
    prepared = work.prepared or node_features(graph, splits, recipe)
    task = node_task(graph, splits, recipe, device, model, prepared)
    fresh = fresh_models(model, recipe, graph, task.runs, work.seed, task.in_channels)
    operator = node_operator(model, graph, work.spectrum, device)
    landmarks = node_landmarks(operator, recipe)
    state = None
    if checkpoint:
        file = checkpoint.with_suffix(".safetensors")
        state = Checkpoint(file, _purpose(graph, model, recipe, splits, work.seed))
    told = f"{graph.name}: {label or model}"
    with (
        matmul_precision(recipe.precision, device),
        place.progress.stage(told, recipe.schedule.epochs, task.metric) as update,
    ):
        fit = fit_task(
            fresh,
            task,
            operator,
            recipe,
            landmarks=landmarks,
            cache=place.cache,
            checkpoint=state,
            on_progress=update,
        )
    return Fitted(fit, fresh, task, operator, landmarks)


def learn_nodes(
    work: NodeWork, place: Workplace, checkpoint: Path | None = None, label: str | None = None
) -> Outcome:
    """Train one model per split, all at once, and look at what they learned.

    Args:
        work: what to train on what.
        place: where; its cache also holds what batches of nodes are made of, where memory has no
            room for it.
        checkpoint: the path, without its ending, of a file to write the state to now and then, and
            to go on from if it exists.
        label: the name its arrays are kept under, if not the model's.
    """
    graph, splits, model, recipe = work.graph, work.splits, work.model, work.recipe
    started = time.perf_counter()
    label = label or model
    prepared = work.prepared or node_features(graph, splits, recipe)
    say_preparation(graph.name, prepared[0])
    fitted = fit_nodes_of(replace(work, prepared=prepared), place, checkpoint, label)
    fit, fresh, task = fitted.fit, fitted.fresh, fitted.task
    operator, landmarks = fitted.operator, fitted.landmarks
    _check_divergence(fit, f"{graph.name}: {label}")
    with matmul_precision(recipe.precision, place.device):
        tested = {} if recipe.batch_size else _tested(fit.model, task, operator, landmarks)
    models = [unstack(fit.model, run, fresh[run]).eval() for run in range(task.runs)]
    row = {
        "dataset": graph.name,
        "description": _describe(graph, recipe, splits[0]),
        "model": model,
        "metric": task.metric,
        **_names(graph),
        "runs": task.runs,
        "splits": [split.fingerprint for split in splits],
        **_figures(fit, task.metric),
        "parameters": sum(parameter.numel() for parameter in fresh[0].parameters()),
        "seconds": time.perf_counter() - started + fit.seconds_before,
    }
    where = f"nodes/{graph.name}/{label}"
    arrays = {f"{where}/curve": fit.curves.cpu().numpy()}
    arrays |= {f"{where}/{what}": array for what, array in tested.items()}
    if not isinstance(operator, Propagation):
        arrays |= _pictures(where, models[0], operator)
    if not recipe.batch_size:
        seen, row["worst"] = node_insights(graph, task, fit.model, models, operator, landmarks)
        arrays |= {f"{where}/{name}": array for name, array in seen.items()}
    if isinstance(operator, ImplicitSpectrum):
        row["interpolation_error"] = interpolation_error(models, operator)
    if isinstance(operator, Spectrum) and landmarks is not None:
        row["landmark_error"] = landmark_error(models, operator, landmarks)
    if prepared[0].scaling == "columns":
        row["features"] = prepared[0].told()
    beside = [{FEATURES: own.to_json()} for own in prepared]
    if scale := task.objective.scale:
        for run, documents in enumerate(beside):
            mean, std = (part[run, 0].tolist() for part in scale)
            documents[TARGETS] = {"mean": mean, "std": std}
    return Outcome(row, arrays, models, fit.seconds_before, beside=beside)


def _names(graph: Graph) -> dict[str, list[str]]:
    """What classes are called, or targets where there are several or they have a name."""
    if graph.num_targets:
        return {"targets": target_names(graph)}
    return {"classes": list(graph.class_names or map(str, range(graph.num_classes)))}


def target_names(graph: Graph) -> list[str]:
    """What labels or numbers are called: as in their file, or by number."""
    return list(graph.class_names or (f"target {n}" for n in range(graph.num_targets)))


def check_parts(graph: Graph, recipe: NodeRecipe, splits: Sequence[Split]) -> None:
    """Refuse, before anything is trained, parts that the metric says nothing about."""
    assert graph.y is not None
    y = np.asarray(graph.y, dtype=np.float64).reshape(graph.num_nodes, -1)
    for split in splits:
        for part in (split.val, split.test):
            try:
                metric_named(recipe.metric or "accuracy").check(y[part], "nodes")
            except ConfigError as error:
                raise ConfigError(f"{graph.name}: {error}") from error


def _figures(fit: NodeFit, metric: str) -> dict[str, Any]:
    """Figures at the epochs of both rules, and how many epochs the runs took."""
    return {
        "test": summary(fit.by_loss.test.tolist()),
        "val": summary(fit.by_loss.val.tolist()),
        f"test_by_{metric}": summary(fit.by_metric.test.tolist()),
        f"val_by_{metric}": summary(fit.by_metric.val.tolist()),
        "epochs": float(fit.epochs.double().mean()),
        "epochs_each": fit.epochs.tolist(),
    }


def _check_divergence(fit: NodeFit, what: str) -> None:
    """Refuse runs that never had a finite validation loss; tell of those that lost it later."""
    losses = fit.curves[..., :2].sum(dim=-1).cpu().numpy()  # of training and of validation
    refuse_lost(losses, fit.is_lost.cpu().numpy())
    epochs = fit.epochs.tolist()
    warn_of_divergence(what, [losses[:upto, run] for run, upto in enumerate(epochs)])


@torch.no_grad()
def _tested(
    model: nn.Module, task: NodeTask, operator: object, landmarks: Keys | None
) -> dict[str, np.ndarray]:
    """What a report shows of the test nodes of all runs.

    Of classes, how often each was taken for each, ``[classes, classes]``. Of labels, numbers and
    two classes that are ranked, predictions and targets ``[2, nodes, targets]``.
    """
    points = () if landmarks is None else (landmarks,)
    outputs: Tensor = model.eval()(task.x, operator, *points)
    told = task.objective.predictions(outputs)
    true = task.y.expand(*outputs.shape[:2], *task.y.shape[1:])[task.test]
    shown = {}
    if task.loss == "ce":
        taken_for = outputs.argmax(dim=-1)[task.test]
        counts = confusion(true.cpu().numpy(), taken_for.cpu().numpy(), outputs.shape[-1])
        shown["confusion"] = counts
        told, true = told[..., 1:], true.unsqueeze(-1)
    if task.loss != "ce" or task.metric in ("rocauc", "ap"):
        both = torch.stack([told[task.test].float(), true.float()])[..., :_SHOWN]
        shown["tested"] = both.cpu().numpy()
    return shown


def _purpose(
    graph: Graph, model: str, recipe: NodeRecipe, splits: Sequence[Split], seed: int
) -> str:
    """What a checkpoint's state belongs to: nothing may differ when a run goes on."""
    drawn = [split.fingerprint for split in splits]
    return json.dumps([model, asdict(recipe), drawn, seed, graph.fingerprint])


@torch.no_grad()
def landmark_error(models: Sequence[nn.Module], spectrum: Spectrum, landmarks: Keys) -> float:
    """How far the trained filters are from exact attention's, relative to their largest value."""
    errors = []
    for model in models:
        assert isinstance(model, Specformer)
        model = model.to(spectrum.device).eval()
        exact, near = (torch.stack(model.responses(spectrum, k)) for k in (None, landmarks))
        errors.append(float((near - exact).abs().max() / exact.abs().max().clamp_min(1e-12)))
    return max(errors)


@torch.no_grad()
def each_prediction(
    models: Sequence[nn.Module],
    graph: Graph,
    operator: AnySpectrum | Propagation,
    prepared: Sequence[FeaturePreparation],
    device: torch.device,
    loss: Loss = "ce",
    scales: Sequence[Scale] = (),
) -> Tensor:
    """Predictions of every model, ``[models, n, classes or targets]``.

    Classes and labels have probabilities, numbers are in their own units.

    Args:
        models: the trained ones.
        graph: with features.
        operator: what the models take beside the features.
        prepared: how each model's run prepared the features.
        device: where to predict.
        loss: what was learned.
        scales: of numbers, mean and standard deviation of each run's.
    """
    if isinstance(operator, ImplicitSpectrum):
        interpolation_error(models, operator)
    found = []
    known: FeaturePreparation | None = None
    for run, (model, own) in enumerate(zip(models, prepared, strict=True)):
        if own != known:
            known, x = own, torch.as_tensor(own.dense(graph)).to(device)
        outputs = model.to(device).eval()(x, operator)
        if loss == "ce":
            outputs = outputs.softmax(dim=-1)
        elif loss == "bce":
            outputs = outputs.sigmoid()
        else:
            outputs = scales[run].original(outputs)
        found.append(outputs)
    return torch.stack(found).cpu()


def interpolation_error(models: Sequence[nn.Module], spectrum: ImplicitSpectrum) -> float:
    """The largest of the models' interpolation errors, with a warning where it is large."""
    error = max(
        model.to(spectrum.device).eval().interpolation_error(spectrum)
        for model in models
        if isinstance(model, Specformer)
    )
    level = logging.WARNING if error > _LARGE_ERROR else logging.INFO
    logger.log(
        level, "filters of degree %d are %.1f%% off the model's own", spectrum.degree, 100 * error
    )
    return error


@torch.no_grad()
def _pictures(where: str, model: nn.Module, spectrum: AnySpectrum) -> dict[str, np.ndarray]:
    assert isinstance(model, Specformer)
    model = model.to(spectrum.device)
    response = model.responses(spectrum)[0]
    if isinstance(spectrum, Spectrum):
        eigenvalues = spectrum.eigenvalues
    else:
        eigenvalues = spectrum.quantiles(min(_DRAWN, spectrum.num_nodes))
        response = spectrum.interpolate(response, eigenvalues)
    return {
        f"{where}/eigenvalues": eigenvalues.cpu().numpy(),
        f"{where}/response": response.cpu().numpy(),
        f"{where}/attention": model.condensed_attention(spectrum)[0].cpu().numpy(),
    }


def _describe(graph: Graph, recipe: NodeRecipe, split: Split) -> str:
    assert graph.y is not None
    protocol = recipe.split if split.is_tested else "its own"
    parts = f"{split.in_words.replace(' train', ' nodes train', 1)} ({protocol})"
    counted = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
    if graph.num_targets > 1:
        return f"{counted}; {parts}; {graph.num_targets} targets, figures are means over them"
    if graph.num_targets:
        return f"{counted}; {parts}"
    rows, columns = graph.adjacency.nonzero()
    known = (graph.y[rows] >= 0) & (graph.y[columns] >= 0) & (rows != columns)
    if known.any():
        same = float(np.mean(graph.y[rows[known]] == graph.y[columns[known]]))
        counted += f", {same:.0%} of them between nodes of one class"
    return f"{counted}; {parts}"
