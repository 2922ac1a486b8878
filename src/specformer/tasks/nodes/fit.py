r"""Classify the nodes of one graph with one model, every split a run."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specformer.baselines import Propagation
from specformer.datasets import FeaturePreparation, Split
from specformer.datasets.features import say_preparation
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Spectrum
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
from specformer.training.divergence import refuse_lost, warn_of_divergence
from specformer.training.engine.precision import matmul_precision
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.summaries import confusion, summary
from specformer.training.loops.nodes import NodeFit, NodeTask
from specformer.training.runs.checkpoint import Checkpoint
from specformer.training.runs.folder import FEATURES

logger = logging.getLogger(__name__)

#: Above this much relative error a model's interpolated filters are not its own any more.
_LARGE_ERROR = 0.05
#: Eigenvalues drawn in pictures of a spectrum that was not decomposed.
_DRAWN = 2000


def classify_nodes(
    work: NodeWork, place: Workplace, checkpoint: Path | None = None, label: str | None = None
) -> Outcome:
    """Train one model per split, all at once.

    Args:
        work: what to train on what.
        place: where; its cache also holds what batches of nodes are made of, where memory has no
            room for it.
        checkpoint: the path, without its ending, of a file to write the state to now and then, and
            to go on from if it exists.
        label: the name its arrays are kept under, if not the model's.
    """
    graph, splits, model, recipe = work.graph, work.splits, work.model, work.recipe
    device = place.device
    started = time.perf_counter()
    label = label or model
    prepared = work.prepared or node_features(graph, splits, recipe)
    say_preparation(graph.name, prepared[0])
    task = node_task(graph, splits, recipe, device, model, prepared)
    fresh = fresh_models(model, recipe, graph, task.runs, work.seed, task.in_channels)
    operator = node_operator(model, graph, work.spectrum, device)
    landmarks = node_landmarks(operator, recipe)
    state = None
    if checkpoint:
        file = checkpoint.with_suffix(".safetensors")
        state = Checkpoint(file, _purpose(graph, model, recipe, splits, work.seed))
    with (
        matmul_precision(recipe.precision, device),
        place.progress.stage(
            f"{graph.name}: {label}", recipe.schedule.epochs, "accuracy"
        ) as update,
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
        _check_divergence(fit, f"{graph.name}: {label}")
        taken = None if recipe.batch_size else _confusion(fit.model, task, operator, landmarks)
    models = [unstack(fit.model, run, fresh[run]).eval() for run in range(task.runs)]
    row = {
        "dataset": graph.name,
        "description": _describe(graph, recipe, splits[0]),
        "model": model,
        "classes": list(graph.class_names or map(str, range(graph.num_classes))),
        "runs": task.runs,
        "splits": [split.fingerprint for split in splits],
        **_figures(fit),
        "parameters": sum(parameter.numel() for parameter in fresh[0].parameters()),
        "seconds": time.perf_counter() - started + fit.seconds_before,
    }
    where = f"nodes/{graph.name}/{label}"
    arrays = {f"{where}/curve": fit.curves.cpu().numpy()}
    if taken is not None:
        arrays[f"{where}/confusion"] = taken
    if not isinstance(operator, Propagation):
        arrays |= _pictures(where, models[0], operator)
    if isinstance(operator, ImplicitSpectrum):
        row["interpolation_error"] = interpolation_error(models, operator)
    if isinstance(operator, Spectrum) and landmarks is not None:
        row["landmark_error"] = landmark_error(models, operator, landmarks)
    if prepared[0].scaling == "columns":
        row["features"] = prepared[0].told()
    beside = [{FEATURES: own.to_json()} for own in prepared]
    return Outcome(row, arrays, models, fit.seconds_before, beside=beside)


def _figures(fit: NodeFit) -> dict[str, Any]:
    """Accuracies at the epochs of both rules, and how many epochs the runs took."""
    return {
        "test": summary(fit.by_loss.test.tolist()),
        "val": summary(fit.by_loss.val.tolist()),
        "test_by_accuracy": summary(fit.by_accuracy.test.tolist()),
        "val_by_accuracy": summary(fit.by_accuracy.val.tolist()),
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
def _confusion(
    model: nn.Module, task: NodeTask, operator: object, landmarks: Keys | None
) -> np.ndarray:
    """Test nodes of all runs, true class by predicted, ``[classes, classes]``."""
    points = () if landmarks is None else (landmarks,)
    scores: Tensor = model.eval()(task.x, operator, *points)
    predicted = scores.argmax(dim=-1)
    true, taken_for = task.y.expand_as(predicted)[task.test], predicted[task.test]
    return confusion(true.cpu().numpy(), taken_for.cpu().numpy(), scores.shape[-1])


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
def predict_nodes(
    models: Sequence[nn.Module],
    graph: Graph,
    operator: AnySpectrum | Propagation,
    prepared: Sequence[FeaturePreparation],
    device: torch.device,
) -> Tensor:
    """Class probabilities ``[n, classes]``, the mean over the models of all runs.

    ``prepared``: how each model's run prepared the features.
    """
    if isinstance(operator, ImplicitSpectrum):
        interpolation_error(models, operator)
    chances = []
    known: FeaturePreparation | None = None
    for model, own in zip(models, prepared, strict=True):
        if own != known:
            known, x = own, torch.as_tensor(own.dense(graph)).to(device)
        chances.append(model.to(device).eval()(x, operator).softmax(dim=-1))
    return torch.stack(chances).mean(dim=0).cpu()


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
    train, val, test = (int(part.sum()) for part in (split.train, split.val, split.test))
    parts = f"{train:,} nodes train, {val:,} validate and {test:,} test ({recipe.split})"
    rows, columns = graph.adjacency.nonzero()
    known = (graph.y[rows] >= 0) & (graph.y[columns] >= 0) & (rows != columns)
    counted = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
    if known.any():
        same = float(np.mean(graph.y[rows[known]] == graph.y[columns[known]]))
        counted += f", {same:.0%} of them between nodes of one class"
    return f"{counted}; {parts}"
