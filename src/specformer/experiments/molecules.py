r"""Learn from one set of graphs with one model, in one run or several."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import GraphStore, Split, graph_split
from specformer.datasets.molecule_splits import has_secret_test
from specformer.errors import ConfigError
from specformer.experiments.graph_models import num_outputs
from specformer.experiments.graph_recipe import GraphRecipe
from specformer.experiments.graph_run import GraphJob
from specformer.experiments.lanes import train_in_lanes
from specformer.experiments.molecule_pictures import filter_pictures
from specformer.graphs import GraphSet
from specformer.spectrum import ManySpectra, decompose_many
from specformer.spectrum.many_cache import fetch_or_solve
from specformer.training.distributed import ALONE, Workers
from specformer.training.divergence import warn_of_divergence
from specformer.training.graph_evaluation import Evaluation, Work
from specformer.training.graph_history import GraphMonitor
from specformer.training.graph_loop import GraphFit
from specformer.training.graph_metrics import metric_named
from specformer.training.metrics import confusion, summary
from specformer.training.progress import Progress, Silent

logger = logging.getLogger(__name__)

_PREDICT_BATCH = 64
#: Targets whose predictions a report shows.
_SHOWN = 4


@dataclass(frozen=True)
class GraphOutcome:
    """A row for tables, arrays to draw, and the trained models by run.

    ``seconds_before`` went into epochs that checkpoints held already.
    """

    row: dict[str, Any]
    arrays: dict[str, np.ndarray]
    models: list[nn.Module]
    seconds_before: float


def graph_spectra(
    graphs: GraphSet, recipe: GraphRecipe, device: torch.device, cache: str | Path | None
) -> ManySpectra:
    """The eigenpairs a recipe asks for, solved on a device.

    With a cache they stay in its file, and go where the graphs go if they fit there.
    """
    if cache is None:
        return decompose_many(graphs, matrix=recipe.matrix, device=device)
    return fetch_or_solve(
        Path(cache), graphs, matrix=recipe.matrix, isolated="one", device=device, solve_in=None
    )


def graph_splits(graphs: GraphSet, recipe: GraphRecipe, runs: int, seed: int) -> list[Split]:
    """One split a run; a fixed one serves all."""
    return [graph_split(graphs, recipe.split, seed + run) for run in range(runs)]


def learn_graphs(
    job: GraphJob,
    *,
    progress: Progress,
    label: str | None = None,
    workers: Workers = ALONE,
    lanes: int = 1,
    checkpoint: Callable[[int], Path] | None = None,
) -> GraphOutcome:
    """Train one model a split.

    Args:
        job: what to train on what.
        progress: who is told.
        label: the name its arrays are kept under, if not the model's.
        workers: who trains one run together.
        lanes: runs that train at the same time, in processes of their own.
        checkpoint: names the file of a run's state, to write now and then and to go on from.
    """
    started = time.perf_counter()
    graphs, splits, recipe = job.graphs, job.splits, job.recipe
    label = label or job.model
    _warn_of_parts(job)
    check_parts(graphs, recipe, splits)
    stage = f"{graphs.name}: {label}"
    lanes = min(lanes, len(splits))
    with _files(checkpoint, len(splits), wanted=lanes > 1) as files:
        if lanes > 1:
            before = _in_lanes(job, files, lanes, progress, stage)
            progress = Silent()  # what remains is to read what they wrote
        fits = _fits(job, files, workers, progress, stage)
    warn_of_divergence(stage, [fit.curves[:, 0] for fit in fits])
    if lanes == 1:
        before = sum(fit.seconds_before for fit in fits)
    row = {
        "dataset": graphs.name,
        "description": _describe(graphs, recipe, splits[0]),
        "model": job.model,
        **({"start": job.start.origin} if job.start else {}),
        "runs": len(splits),
        "metric": recipe.metric,
        "targets": list(graphs.task_names or ())[:_SHOWN],
        **_classes(graphs, recipe),
        "splits": [split.fingerprint for split in splits],
        "matrix": recipe.matrix,
        **_figures(fits, recipe),
        **_together(fits, splits, recipe),
        **_by_target(fits, recipe, target_names(graphs)),
        "parameters": sum(parameter.numel() for parameter in fits[0].model.parameters()),
        "epochs": float(recipe.schedule.epochs),
        "seconds_per_epoch": float(np.mean([fit.seconds_per_epoch for fit in fits])),
        "seconds": time.perf_counter() - started + before + (job.start.seconds if job.start else 0),
    }
    curves = np.stack([fit.curves for fit in fits], axis=1)
    where = f"molecules/{graphs.name}/{label}"
    tested = np.flatnonzero(splits[0].test)
    arrays = {
        f"{where}/curve": curves,
        **_tested(where, fits, recipe),
        **filter_pictures(where, fits[0].model, job.spectra, tested, recipe.matrix),
    }
    return GraphOutcome(row, arrays, [fit.model for fit in fits], before)


@contextmanager
def _files(
    checkpoint: Callable[[int], Path] | None, runs: int, *, wanted: bool
) -> Iterator[list[Path | None]]:
    """The checkpoints of all runs; in a folder that goes again where they are only ``wanted``."""
    if checkpoint is not None or not wanted:
        yield [checkpoint(run) if checkpoint else None for run in range(runs)]
        return
    with TemporaryDirectory() as folder:
        yield [Path(folder) / f"{run}.safetensors" for run in range(runs)]


def _in_lanes(
    job: GraphJob, files: Sequence[Path | None], lanes: int, progress: Progress, stage: str
) -> float:
    runs, recipe = len(job.splits), job.recipe
    assert recipe.metric is not None
    label = f"{stage}, {runs} runs in {lanes} lanes"
    with progress.stage(label, runs * recipe.schedule.epochs, recipe.metric) as update:
        return train_in_lanes(job, [file for file in files if file], lanes, update)


def _fits(
    job: GraphJob,
    files: Sequence[Path | None],
    workers: Workers,
    progress: Progress,
    stage: str,
) -> list[GraphFit]:
    """One run after the other."""
    store, recipe, found = job.store(), job.recipe, []
    assert recipe.metric is not None
    for run, file in enumerate(files):
        label = stage + (f", run {run + 1}" if len(files) > 1 else "")
        with progress.stage(label, recipe.schedule.epochs, recipe.metric) as update:
            fit = job.fit(store, run, workers=workers, checkpoint=file, on_epoch=update)
            found.append(fit)
    return found


def predict_graphs(
    models: Sequence[nn.Module],
    graphs: GraphSet,
    recipe: GraphRecipe,
    device: torch.device,
    cache: str | Path | None = None,
) -> Tensor:
    """Predictions of each model ``[models, G, tasks]``; of classes, the probability of 1.

    Of one target with several classes, the probability of each ``[models, G, classes]``.
    """
    spectra = graph_spectra(graphs, recipe, device, cache)
    max_ring = getattr(models[0], "max_ring", None)
    store = GraphStore.build(graphs, spectra, max_ring=max_ring).placed(device)
    found = []
    for model in models:
        work = Work(model.to(device), recipe.precision, device)
        evaluation = Evaluation(work, store, np.arange(len(graphs)), _PREDICT_BATCH)
        outputs = evaluation.outputs()
        ordered = torch.empty_like(outputs)
        ordered[evaluation.order.cpu()] = outputs
        found.append(_in_words(ordered, recipe))
    return torch.stack(found)


def _in_words(outputs: Tensor, recipe: GraphRecipe) -> Tensor:
    """A model's outputs as people read them: numbers as they are, logits as probabilities."""
    if recipe.loss == "ce":
        return outputs.softmax(dim=-1)
    return outputs.sigmoid() if recipe.loss == "bce" else outputs


def _tested(where: str, fits: Sequence[GraphFit], recipe: GraphRecipe) -> dict[str, np.ndarray]:
    """Predictions for the test graphs of all runs and their targets, ``[2, graphs, tasks]``.

    Of one target with several classes, graphs by true and predicted class, ``[classes, classes]``.
    """
    predicted, measured = (
        np.concatenate([getattr(fit, name) for fit in fits]) for name in ("predicted", "measured")
    )
    if recipe.loss == "ce":
        known = ~np.isnan(measured[:, 0])
        true, taken_for = measured[known, 0].astype(np.int64), predicted[known].argmax(axis=1)
        return {f"{where}/confusion": confusion(true, taken_for, predicted.shape[1])}
    shown = _in_words(torch.from_numpy(predicted[:, :_SHOWN].astype(np.float32)), recipe)
    both = np.stack([shown.numpy(), measured[:, :_SHOWN].astype(np.float32)])
    return {f"{where}/tested": both}


def _figures(fits: Sequence[GraphFit], recipe: GraphRecipe) -> dict[str, Any]:
    """Test and validation figures at the epoch kept, and the test's by every rule."""

    def tested(rule: GraphMonitor) -> dict[str, Any]:
        return summary([fit.chosen[rule].test for fit in fits])

    kept = [fit.chosen[recipe.monitor] for fit in fits]
    return {
        "test": tested(recipe.monitor),
        "val": summary([each.val for each in kept]),
        "best_epochs": [each.epoch for each in kept],
        "test_by_loss": tested("loss"),
        "test_by_metric": tested("metric"),
        # A run may have diverged after its best epoch.
        "test_at_end": tested("last") if all("last" in fit.chosen for fit in fits) else None,
    }


def _together(
    fits: Sequence[GraphFit], splits: Sequence[Split], recipe: GraphRecipe
) -> dict[str, float]:
    """The test figure of the mean of all runs' predictions, where they have one split.

    That mean is what ``predict`` tells.
    """
    if len({split.fingerprint for split in splits}) > 1 or len(splits) == 1:
        return {}
    assert recipe.metric is not None
    outputs = torch.from_numpy(np.stack([fit.predicted for fit in fits])).double()
    mean = _in_words(outputs, recipe).mean(dim=0)
    if recipe.loss == "bce":
        mean -= 0.5  # as a logit, above 0 where the class is 1
    return {"test_together": metric_named(recipe.metric)(mean.numpy(), fits[0].measured)}


def _by_target(
    fits: Sequence[GraphFit], recipe: GraphRecipe, names: Sequence[str]
) -> dict[str, dict[str, dict[str, Any] | None]]:
    """The test figures of each of several targets, None where no run has one."""
    if len(names) == 1:
        return {}
    assert recipe.metric is not None
    metric = metric_named(recipe.metric)
    runs = [metric.each(fit.predicted, fit.measured) for fit in fits]
    found = {}
    for name, figures in zip(names, zip(*runs, strict=True), strict=True):
        known = [figure for figure in figures if figure is not None]
        found[name] = summary(known) if known else None
    return {"test_by_target": found}


def _classes(graphs: GraphSet, recipe: GraphRecipe) -> dict[str, list[str]]:
    """What the classes of the only target are called, where they have names or are several."""
    if graphs.class_names is not None:
        return {"classes": list(graphs.class_names)}
    if recipe.loss != "ce":
        return {}
    return {"classes": [str(number) for number in range(num_outputs(graphs, recipe))]}


def target_names(graphs: GraphSet) -> list[str]:
    """What the targets are called: as in their file, or by number."""
    return list(graphs.task_names or (f"target {n}" for n in range(graphs.num_tasks)))


def _warn_of_parts(job: GraphJob) -> None:
    """Say where another part is tested on, and which targets nobody can learn."""
    graphs = job.graphs
    assert graphs.y is not None
    if job.recipe.split == "official" and has_secret_test(graphs):
        logger.warning(
            "%s: the test part has no targets; the validation part is tested on, and %s graphs of "
            "the training part validate.",
            graphs.name,
            f"{int(job.splits[0].val.sum()):,}",
        )
    missing = np.isnan(graphs.y)
    unknown = np.any([missing[split.train].all(axis=0) for split in job.splits], axis=0)
    if unknown.any():
        logger.warning(
            "%s: no graph to learn from has a known %s; predictions of it mean nothing.",
            graphs.name,
            " or ".join(np.array(target_names(graphs))[unknown]),
        )


def check_parts(graphs: GraphSet, recipe: GraphRecipe, splits: Sequence[Split]) -> None:
    """Refuse, before anything is trained, parts that the metric says nothing about."""
    assert graphs.y is not None
    assert recipe.metric is not None
    for split in splits:
        for part in ("val", "test"):
            try:
                metric_named(recipe.metric).check(graphs.y[getattr(split, part)])
            except ConfigError as error:
                raise ConfigError(f"{graphs.name}: {error}") from error


def _describe(graphs: GraphSet, recipe: GraphRecipe, split: Split) -> str:
    targets = ""
    if graphs.num_tasks > 1:
        targets = f"; {graphs.num_tasks} targets, figures are means over them"
        if graphs.num_tasks > _SHOWN:
            targets += f", predictions of the first {_SHOWN} are drawn"
    elif graphs.task_names:
        targets = f"; the target is {graphs.task_names[0]}"
    if recipe.loss == "ce":
        targets += f"; {num_outputs(graphs, recipe)} classes"
    train, val, test = (int(part.sum()) for part in (split.train, split.val, split.test))
    return (
        f"{len(graphs):,} graphs of {graphs.num_nodes.mean():.1f} nodes and "
        f"{graphs.num_edges.mean():.1f} bonds on average, the largest of "
        f"{int(graphs.num_nodes.max())} nodes; {train:,} train, {val:,} validate and {test:,} test "
        f"({recipe.split}){targets}"
    )
