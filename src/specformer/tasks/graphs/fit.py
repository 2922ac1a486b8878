r"""Learn from one set of graphs with one model, in one run or several."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets import Split
from specformer.datasets.molecule_splits import has_secret_test
from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.tasks.graphs.insights import graph_insights
from specformer.tasks.graphs.models import num_outputs, packed_for
from specformer.tasks.graphs.pictures import filter_pictures
from specformer.tasks.graphs.recipe import FOREST, GraphRecipe
from specformer.tasks.graphs.work import GraphWork, graph_spectra
from specformer.tasks.lanes import train_in_lanes
from specformer.tasks.task import Outcome
from specformer.tasks.workplace import Workplace
from specformer.training.engine.distributed import Workers
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.graphs import GraphEvaluation, GraphMonitor, Work
from specformer.training.evaluation.summaries import confusion, spread_bins, summary
from specformer.training.loops.graphs import GraphFit
from specformer.training.optim.early_stopping import warn_of_divergence
from specformer.training.runs.checkpoint import numbered
from specformer.training.runs.progress import Progress, Silent

logger = logging.getLogger(__name__)

_PREDICT_BATCH = 64
#: Targets whose predictions a report shows.
_SHOWN = 4


def learn_graphs(
    work: GraphWork, place: Workplace, checkpoint: Path | None = None, label: str | None = None
) -> Outcome:
    """Train one model per split.

    Args:
        work: what to train on what.
        place: where.
        checkpoint: the path of the state's files; the run's number and an ending are appended.
        label: the name its arrays are kept under, if not the model's.
    """
    started = time.perf_counter()
    graphs, splits, recipe = work.graphs, work.splits, work.recipe
    assert work.spectra is not None
    label = label or work.model
    _warn_of_parts(work)
    check_parts(graphs, recipe, splits)
    stage = f"{graphs.name}: {label}"
    # A forest's trees grow side by side, in threads.
    lanes = 1 if work.model == FOREST else min(place.lanes, len(splits))
    progress = place.progress
    with _files(checkpoint, len(splits), wanted=lanes > 1) as files:
        if lanes > 1:
            before = _in_lanes(work, files, lanes, progress, stage)
            progress = Silent()  # what remains is to read what they wrote
        fits = _fits(work, files, place.workers, progress, stage)
    warn_of_divergence(stage, [fit.curves[:, 0] for fit in fits])
    if lanes == 1:
        before = sum(fit.seconds_before for fit in fits)
    first = work.start.seconds if work.start else 0.0
    row = {
        "dataset": graphs.name,
        "description": _describe(graphs, recipe, splits[0]),
        "model": work.model,
        **({"start": work.start.origin} if work.start else {}),
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
        "seconds": time.perf_counter() - started + before + first,
    }
    curves = np.stack([fit.curves for fit in fits], axis=1)
    where = f"molecules/{graphs.name}/{label}"
    tested = np.flatnonzero(splits[0].test)
    arrays = {
        f"{where}/curve": curves,
        **_tested(where, fits, recipe),
        **_calibration(where, fits, splits, recipe),
        **filter_pictures(where, fits[0].model, work.spectra, tested, recipe.matrix),
    }
    seen = graph_insights(graphs, tested, fits[0].model, recipe, place.device)
    arrays |= {f"{where}/{name}": array for name, array in seen.items()}
    return Outcome(row, arrays, [fit.model for fit in fits], before)


@contextmanager
def _files(checkpoint: Path | None, runs: int, *, wanted: bool) -> Iterator[list[Path | None]]:
    """The checkpoints of all runs, in a folder that goes again where they are only ``wanted``."""
    with TemporaryDirectory() if wanted and checkpoint is None else nullcontext() as folder:
        stem = Path(folder) / "run" if folder else checkpoint
        yield [stem and numbered(stem, run) for run in range(runs)]


def _in_lanes(
    work: GraphWork, files: Sequence[Path | None], lanes: int, progress: Progress, stage: str
) -> float:
    runs, recipe = len(work.splits), work.recipe
    assert recipe.metric is not None
    label = f"{stage}, {runs} runs in {lanes} lanes"
    with progress.stage(label, runs * recipe.schedule.epochs, recipe.metric) as update:
        return train_in_lanes(work, [file for file in files if file], lanes, update)


def _fits(
    work: GraphWork,
    files: Sequence[Path | None],
    workers: Workers,
    progress: Progress,
    stage: str,
) -> list[GraphFit]:
    """One run after the other."""
    store, recipe, found = work.store(), work.recipe, []
    assert recipe.metric is not None
    for run, file in enumerate(files):
        label = stage + (f", run {run + 1}" if len(files) > 1 else "")
        with progress.stage(label, recipe.schedule.epochs, recipe.metric) as update:
            fit = work.fit(store, run, workers=workers, checkpoint=file, on_epoch=update)
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
    store = packed_for(models[0], graphs, spectra).placed(device)
    found = []
    for model in models:
        work = Work(model.to(device), recipe.precision, device)
        evaluation = GraphEvaluation(work, store, np.arange(len(graphs)), _PREDICT_BATCH)
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
    if not _judge_the_same(splits):
        return {}
    assert recipe.metric is not None
    outputs = torch.from_numpy(np.stack([fit.predicted for fit in fits])).double()
    mean = _in_words(outputs, recipe).mean(dim=0)
    if recipe.loss == "bce":
        mean -= 0.5  # as a logit, above 0 where the class is 1
    return {"test_together": metric_named(recipe.metric)(mean.numpy(), fits[0].measured)}


def _judge_the_same(splits: Sequence[Split]) -> bool:
    """Whether there are several runs, with one split."""
    return len(splits) > 1 and len({split.fingerprint for split in splits}) == 1


def _calibration(
    where: str, fits: Sequence[GraphFit], splits: Sequence[Split], recipe: GraphRecipe
) -> dict[str, np.ndarray]:
    """Errors beside the spread over runs on their common test part, of the first target.

    Only of numbers. Where each run has its own split, the others have learned from what it tests.
    """
    if recipe.task != "regression" or not _judge_the_same(splits):
        return {}
    predicted = np.stack([fit.predicted[:, 0] for fit in fits]).astype(np.float64)
    return {f"{where}/calibration": spread_bins(predicted, fits[0].measured[:, 0])}


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


def base_prediction(work: GraphWork) -> list[float]:
    """What a model says that knows the training targets and no graph: means, or shares."""
    assert work.graphs.y is not None
    y = work.graphs.y[work.splits[0].train].astype(np.float64)
    if work.recipe.loss == "ce":
        known = y[~np.isnan(y[:, 0]), 0].astype(np.int64)
        counts = np.bincount(known, minlength=num_outputs(work.graphs, work.recipe))
        return [float(share) for share in counts / max(1, counts.sum())]
    counted = np.maximum(1, (~np.isnan(y)).sum(axis=0))
    return [float(mean) for mean in np.nan_to_num(y).sum(axis=0) / counted]


def target_names(graphs: GraphSet) -> list[str]:
    """What the targets are called: as in their file, or by number."""
    return list(graphs.task_names or (f"target {n}" for n in range(graphs.num_tasks)))


def _warn_of_parts(work: GraphWork) -> None:
    """Say where another part is tested on, and which targets nobody can learn."""
    graphs = work.graphs
    assert graphs.y is not None
    if work.recipe.split == "official" and has_secret_test(graphs):
        logger.warning(
            "%s: the test part has no targets; the validation part is tested on, and %s graphs of "
            "the training part validate.",
            graphs.name,
            f"{int(work.splits[0].val.sum()):,}",
        )
    missing = np.isnan(graphs.y)
    unknown = np.any([missing[split.train].all(axis=0) for split in work.splits], axis=0)
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
    protocol = recipe.split if split.is_tested else "its own"
    return (
        f"{len(graphs):,} graphs of {graphs.num_nodes.mean():.1f} nodes and "
        f"{graphs.num_edges.mean():.1f} bonds on average, the largest of "
        f"{int(graphs.num_nodes.max())} nodes; {split.in_words} ({protocol}){targets}"
    )
