r"""Learn on the nodes of one graph with one model, every split a run."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from specformer.baselines import Propagation
from specformer.datasets import Split
from specformer.datasets.parts import GraphPart
from specformer.graphs import Graph
from specformer.nn import Specformer
from specformer.reports import numbers
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Spectrum
from specformer.spectrum.implicit.polynomial import chebyshev_terms
from specformer.tasks.job import Workplace
from specformer.tasks.nodes.node_insights import node_insights
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.task import SHOWN, Outcome, parameter_count, target_names
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.evaluation.summaries import confusion, summary
from specformer.training.loops.node_batches import check_batches, fit_node_batches
from specformer.training.loops.nodes import FullBatchTask, NodeFit, fit_nodes
from specformer.training.optim.early_stopping import refuse_lost, warn_of_divergence
from specformer.training.runs.checkpoint import Checkpoint, numbered
from specformer.training.runs.environment import matmul_precision
from specformer.training.runs.folder import FEATURES, TARGETS

if TYPE_CHECKING:
    from specformer.tasks.nodes.node_work import NodeWork

logger = logging.getLogger(__name__)

#: A model's interpolated filters may differ from its own by this relative error without a warning.
_LARGE_ERROR = 0.05
#: Eigenvalues drawn in pictures of a spectrum that was not decomposed.
_DRAWN = 2000
#: Landmarks of a long spectrum, one of more distinct eigenvalues than the second number.
_LANDMARKS, _LONG = 512, 2048


@dataclass(frozen=True)
class Fitted:
    """The models of all runs, stacked, and what they were trained on.

    ``fresh`` are the models before training; ``started`` is when training began.
    """

    work: NodeWork
    fit: NodeFit
    fresh: Sequence[nn.Module]
    task: FullBatchTask
    operator: AnySpectrum | Propagation
    landmarks: Keys | None
    started: float

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """The models' outputs for this worker's nodes, ``[runs, m, channels]``."""
        points = () if self.landmarks is None else (self.landmarks,)
        found: Tensor = self.fit.model.eval()(self.task.x, self.operator, *points)
        return found

    def models(self, label: str) -> list[nn.Module]:
        """The model of each run.

        Runs that never had a finite validation loss are refused; those that lost it later are
        warned of.
        """
        fit = self.fit
        losses = fit.curves[..., :2].sum(dim=-1).cpu().numpy()  # of training and of validation
        refuse_lost(losses, fit.is_lost.cpu().numpy(), fit.layers)
        curves = [losses[:epochs, run] for run, epochs in enumerate(fit.epochs.tolist())]
        warn_of_divergence(f"{self.work.graph.name}: {label}", curves, fit.layers)
        return [unstack(fit.model, run, own).eval() for run, own in enumerate(self.fresh)]

    def row(self, description: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """The result of all runs; ``found`` has the figures, and names of classes or targets."""
        work, fit = self.work, self.fit
        return {
            "dataset": work.graph.name,
            "description": description,
            "model": work.model,
            "metric": self.task.metric,
            "runs": self.task.runs,
            "splits": work.drawn,
            "data": work.fingerprint,
            **found,
            "epochs": float(fit.epochs.double().mean()),
            "epochs_each": fit.epochs.tolist(),
            "parameters": parameter_count(self.fresh[0]),
            "seconds": time.perf_counter() - self.started + fit.seconds_before,
        }


def fit_nodes_of(
    work: NodeWork,
    place: Workplace,
    checkpoint: Path | None,
    label: str,
    inputs: tuple[AnySpectrum | Propagation, FullBatchTask] | None = None,
) -> Fitted:
    """Train one model per run, all at once; arguments as of :meth:`.Work.train`.

    ``inputs``: the work's operator and task, if they are known already.
    """
    started, recipe, device = time.perf_counter(), work.recipe, place.device
    operator, task = inputs or (work.operator(device), work.task(device, place.workers))
    fresh = work.fresh_models(task.x.shape[-1])
    landmarks = node_landmarks(operator, recipe)
    state = None
    if checkpoint:
        # A run goes on only if all of this is the same.
        purpose = [work.model, asdict(recipe), work.drawn, work.seed, work.fingerprint]
        state = Checkpoint(checkpoint.with_suffix(".safetensors"), json.dumps(purpose))
    stage = f"{work.graph.name}: {label}", recipe.schedule.epochs, task.metric
    with matmul_precision(recipe.precision, device), place.progress.stage(*stage) as update:
        options: Any = {"monitor": recipe.monitor, "checkpoint": state, "on_progress": update}
        if recipe.batch_size is None:
            fit = fit_nodes(fresh, task, operator, recipe.schedule, landmarks=landmarks, **options)
        else:
            check_batches(fresh)
            assert isinstance(operator, ImplicitSpectrum)
            assert isinstance(task, NodeTask)
            assert isinstance(task.x, Tensor)
            size = recipe.batch_size
            terms = chebyshev_terms(
                operator, task.x, size, storage=recipe.stored, folder=place.cache
            )
            fit = fit_node_batches(fresh, task, terms, recipe.schedule, batch_size=size, **options)
    return Fitted(work, fit, fresh, task, operator, landmarks, started)


def node_landmarks(operator: AnySpectrum | Propagation, recipe: NodeRecipe) -> Keys | None:
    """The landmarks of attention while training; None to take all eigenvalues."""
    if not isinstance(operator, Spectrum) or recipe.landmarks is None or not recipe.model.attention:
        return None
    tokens, count = len(operator.distinct.values), recipe.landmarks
    if count == "auto":
        count = _LANDMARKS if tokens > _LONG else tokens
    return operator.landmarks(count, points=count) if count < tokens else None


def learn_nodes(
    work: NodeWork, place: Workplace, checkpoint: Path | None = None, label: str | None = None
) -> Outcome:
    """Train one model per split, all at once, and look at what they learned (:meth:`.Work.train`).

    The place's cache also takes the Chebyshev terms of batches that memory cannot hold.
    """
    label, prepared = label or work.model, work.features
    graph, recipe = work.graph, work.recipe
    fitted = fit_nodes_of(replace(work, prepared=prepared), place, checkpoint, label)
    fit, task, operator, landmarks = fitted.fit, fitted.task, fitted.operator, fitted.landmarks
    assert isinstance(task, NodeTask)
    models = fitted.models(label)
    with matmul_precision(recipe.precision, place.device):
        tested = {} if recipe.batch_size else _tested(fitted, isinstance(graph, GraphPart))
    if graph.num_targets:
        names = {"targets": target_names(graph.class_names, graph.num_targets)}
    else:
        names = {"classes": list(graph.class_names or map(str, range(graph.num_classes)))}
    found = {
        **names,
        "num_nodes": graph.num_nodes,
        "test": summary(fit.by_loss.test.tolist()),
        "val": summary(fit.by_loss.val.tolist()),
        f"test_by_{task.metric}": summary(fit.by_metric.test.tolist()),
        f"val_by_{task.metric}": summary(fit.by_metric.val.tolist()),
    }
    row = fitted.row(_describe(graph, recipe, work.splits[0]), found)
    arrays = {"curve": fit.curves.cpu().numpy(), **tested}
    if not isinstance(operator, Propagation):
        arrays |= learned_filters(models[0], operator)
    if not recipe.batch_size and not isinstance(graph, GraphPart):
        seen, row["worst"] = node_insights(graph, task, fitted.outputs(), models, operator)
        arrays |= seen
    if isinstance(operator, ImplicitSpectrum):
        row["interpolation_error"] = interpolation_error(models, operator)
    if isinstance(operator, Spectrum) and landmarks is not None:
        row["landmark_error"] = landmark_error(models, operator, landmarks)
    if prepared[0].scaling == "columns":
        row["features"] = prepared[0].told()
    beside = [{FEATURES: own.to_json()} for own in prepared]
    if scale := task.scale:
        for run, documents in enumerate(beside):
            mean, std = (part[run, 0].tolist() for part in scale)
            documents[TARGETS] = {"mean": mean, "std": std}
    named = {f"nodes/{graph.name}/{label}/{name}": array for name, array in arrays.items()}
    return Outcome(row, named, models, fit.seconds_before, beside=beside)


def _tested(fitted: Fitted, in_parts: bool) -> dict[str, np.ndarray]:
    """Arrays of a report on the test nodes of all runs.

    For classes, how often each was taken for each, ``[classes, classes]``. For labels, numbers and
    two classes that are ranked, predictions and targets ``[2, nodes, targets]``; not for a graph
    in parts, as one process would have to hold them all.
    """
    task, outputs, shown = fitted.task, fitted.outputs(), {}
    assert isinstance(task, NodeTask)
    if task.loss == "ce":
        true = task.y.expand(outputs.shape[:2])[task.test]
        taken_for = outputs.argmax(dim=-1)[task.test]
        counts = confusion(true.cpu().numpy(), taken_for.cpu().numpy(), outputs.shape[-1])
        shown["confusion"] = (
            task.share.sum(torch.as_tensor(counts).to(outputs.device)).cpu().numpy()
        )
    if not in_parts and (task.loss != "ce" or task.metric in ("rocauc", "ap")):
        outputs, task = task.share.whole(outputs), task.gathered()
        told = task.predictions(outputs)
        true = task.y.expand(*outputs.shape[:2], *task.y.shape[1:])[task.test]
        if task.loss == "ce":
            told, true = told[..., 1:], true.unsqueeze(-1)
        both = torch.stack([told[task.test].float(), true.float()])[..., :SHOWN]
        shown["tested"] = both.cpu().numpy()
    return shown


@torch.no_grad()
def landmark_error(models: Sequence[nn.Module], spectrum: Spectrum, landmarks: Keys) -> float:
    """The largest difference to the filters of exact attention, relative to their largest value."""
    errors = []
    for model in models:
        assert isinstance(model, Specformer)
        model = model.to(spectrum.device).eval()
        exact, near = (torch.stack(model.responses(spectrum, k)) for k in (None, landmarks))
        errors.append(float((near - exact).abs().max() / exact.abs().max().clamp_min(1e-12)))
    return max(errors)


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
def learned_filters(model: nn.Module, spectrum: AnySpectrum) -> dict[str, np.ndarray]:
    """Eigenvalues, what Specformer's first filter makes of them, and its attention."""
    assert isinstance(model, Specformer)
    model = model.to(spectrum.device)
    response = model.responses(spectrum)[0]
    if isinstance(spectrum, Spectrum):
        eigenvalues = spectrum.eigenvalues
    else:
        eigenvalues = spectrum.quantiles(min(_DRAWN, spectrum.all_nodes))
        response = spectrum.interpolate(response, eigenvalues)
    return {
        "eigenvalues": eigenvalues.cpu().numpy(),
        "response": response.cpu().numpy(),
        "attention": model.condensed_attention(spectrum)[0].cpu().numpy(),
    }


def _describe(graph: Graph, recipe: NodeRecipe, split: Split) -> str:
    assert graph.y is not None
    protocol = recipe.split if split.is_tested else "its own"
    parts = f"{split.in_words.replace(' train', ' nodes train', 1)} ({protocol})"
    counted = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
    if isinstance(graph, GraphPart):
        return f"{counted}; {parts}"
    if graph.num_targets > 1:
        return f"{counted}; {parts}; {graph.num_targets} targets, figures are means over them"
    if graph.num_targets:
        if recipe.task == "regression":
            spread = numbers.error(float(np.nanstd(graph.y)))
            target = " ".join(["target", *(graph.class_names or ())])
            counted += f"; the {target} has a standard deviation of {spread}"
        return f"{counted}; {parts}"
    rows, columns = graph.adjacency.nonzero()
    known = (graph.y[rows] >= 0) & (graph.y[columns] >= 0) & (rows != columns)
    if known.any():
        same = float(np.mean(graph.y[rows[known]] == graph.y[columns[known]]))
        counted += f", {same:.0%} of them between nodes of one class"
    labels = np.bincount(graph.y[graph.y >= 0])
    counted += f"; the largest class has {labels.max() / labels.sum():.0%} of the labels"
    return f"{counted}; {parts}"


def with_best_form(
    work: NodeWork, place: Workplace, checkpoint: Path | None
) -> tuple[NodeWork, dict[str, Any]]:
    """The work with the form that validates best on its first splits, and what rows say of it.

    Test nodes are not used. Figures are kept beside the checkpoints, so that a resumed run takes
    the same form.
    """
    if not work.recipe.forms:
        return work, {}
    entries, name = 0, work.graph.name
    if isinstance(work.spectrum, Spectrum):  # perhaps with the rows of some nodes only
        entries = work.graph.num_nodes * work.spectrum.num_eigenpairs
    names, splits = work.recipe.tried(entries, place.device)
    if slow := [form for form in work.recipe.forms if form not in names]:
        logger.warning(
            "%s: %s not tried, which take long on a CPU for %d nodes; take one by --set form=%s",
            name, ", ".join(slow), work.graph.num_nodes, slow[0],
        )  # fmt: skip
    recipes = {form: work.recipe.taking(form) for form in names}
    spectra = {work.recipe.spectrum_key: work.spectrum}
    if len(recipes) == 1:
        return _with_recipe(work, recipes[names[0]], place, spectra), {"form": names[0]}
    few = replace(
        work, splits=work.splits[:splits], prepared=work.prepared and work.prepared[:splits]
    )
    figures = torch.full((len(recipes),), math.nan, dtype=torch.float64)
    kept = None
    if checkpoint and place.workers.is_first:
        told = {form: asdict(recipe) for form, recipe in recipes.items()}
        purpose = json.dumps([told, few.drawn, work.seed, work.graph.fingerprint])
        kept = Checkpoint(numbered(checkpoint, "forms"), purpose)
        kept.restore({"figures": figures})
        if before := [form for form, done in zip(names, ~figures.isnan(), strict=True) if done]:
            place.progress.say(f"{name}: tried before: {', '.join(before)}")
    place.workers.copy_from_first([figures])
    for number, (form, recipe) in enumerate(recipes.items()):
        if figures[number].isnan():
            own = checkpoint and checkpoint.with_name(f"{checkpoint.name}-{form}")
            formed = _with_recipe(few, recipe, place, spectra)
            figures[number] = _validated(formed, place, own, form)
            if kept:
                kept.save({"figures": figures})
    if kept and not figures.isfinite().any():
        kept.path.unlink()  # nothing to go on from
    metric = metric_named(work.recipe.metric or "accuracy")
    tried = {
        form: figure if math.isfinite(figure) else None
        for form, figure in zip(names, figures.tolist(), strict=True)
    }
    scores = [math.inf if figure is None else metric.score(figure) for figure in tried.values()]
    taken = names[int(np.argmin(scores))]
    shown = ".1%" if metric.name == "accuracy" else ".4f"
    each = (f"{form} {'diverged' if v is None else f'{v:{shown}}'}" for form, v in tried.items())
    words = f"takes the form {taken} ({metric.label} on validation nodes: {', '.join(each)})"
    place.progress.say(f"{name}: {words}")
    found = {"form": taken, "forms_tried": tried, "description": f"Specformer {words}."}
    return _with_recipe(work, recipes[taken], place, spectra), found


def _with_recipe(
    work: NodeWork, recipe: NodeRecipe, place: Workplace, spectra: dict[str, AnySpectrum | None]
) -> NodeWork:
    """The work with another recipe, whose features and spectrum may differ.

    ``spectra`` keeps all that were computed.
    """
    prepared = work.prepared if recipe.features == work.recipe.features else None
    own = replace(work, recipe=recipe, prepared=prepared)
    if recipe.spectrum_key not in spectra:
        together = recipe.spectrum == "density"  # or the first solves, and the others read
        with nullcontext() if together else place.workers.first_before_others():
            spectra[recipe.spectrum_key] = own.with_spectra(place).spectrum
    return replace(own, spectrum=spectra[recipe.spectrum_key])


def _validated(work: NodeWork, place: Workplace, checkpoint: Path | None, name: str) -> float:
    """The mean validation figure of a form's models; infinite if one diverged."""
    fit = fit_nodes_of(work, place, checkpoint, f"form {name}").fit
    if bool(fit.is_lost.any()):
        return math.inf
    return float(fit.kept.val.double().mean())
