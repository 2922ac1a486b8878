r"""Learn from one set of graphs with one model, in one run or several."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from specformer.datasets import Split
from specformer.datasets.molecule_splits import has_secret_test
from specformer.graphs import GraphSet
from specformer.reports import numbers
from specformer.tasks.graphs.graph_insights import filter_pictures, graph_insights
from specformer.tasks.graphs.graph_lanes import LaneRun, train_in_lanes
from specformer.tasks.graphs.graph_models import num_outputs
from specformer.tasks.graphs.graph_recipe import FOREST, GraphRecipe
from specformer.tasks.job import Workplace
from specformer.tasks.task import SHOWN, Outcome, parameter_count, target_names
from specformer.training.evaluation.graph_metrics import metric_named, predictions
from specformer.training.evaluation.graphs import GraphMonitor
from specformer.training.evaluation.summaries import confusion, spread_bins, summary
from specformer.training.loops.graphs import GraphFit
from specformer.training.optim.early_stopping import warn_of_divergence
from specformer.training.runs.checkpoint import numbered
from specformer.training.runs.progress import Silent

if TYPE_CHECKING:
    from specformer.tasks.graphs.graph_work import GraphWork

logger = logging.getLogger(__name__)


def learn_graphs(
    work: GraphWork, place: Workplace, checkpoint: Path | None = None, label: str | None = None
) -> Outcome:
    """Train one model per split; arguments as of :meth:`.Work.train`."""
    started = time.perf_counter()
    graphs, splits, recipe = work.graphs, work.splits, work.recipe
    assert work.spectra is not None
    label = label or work.model
    _warn_of_parts(work)
    stage = f"{graphs.name}: {label}"
    fits, before = _fits(work, place, checkpoint, stage)
    losses = [fit.curves[: fit.epochs, 0] for fit in fits]
    warn_of_divergence(stage, losses, [fit.layer for fit in fits])
    classes = graphs.class_names
    if classes is None and recipe.loss == "ce":
        classes = tuple(map(str, range(num_outputs(graphs, recipe))))
    row = {
        "dataset": graphs.name,
        "description": _describe(graphs, recipe, splits[0]),
        "model": work.model,
        **({"start": work.start.origin} if work.start else {}),
        "runs": len(splits),
        "metric": recipe.metric,
        "targets": list(graphs.task_names or ())[:SHOWN],
        **({} if classes is None else {"classes": list(classes)}),
        "splits": [split.fingerprint for split in splits],
        "data": work.fingerprint,
        "matrix": recipe.matrix,
        **_figures(fits, work),
        "parameters": parameter_count(fits[0].model),
        "epochs": float(np.mean([fit.epochs for fit in fits])),
        "seconds_per_epoch": float(np.mean([fit.seconds_per_epoch for fit in fits])),
        "seconds": time.perf_counter() - started + before,
    }
    if work.start:
        row["seconds"] += work.start.seconds
    model, tested = fits[0].model, np.flatnonzero(splits[0].test)
    arrays = {
        "curve": np.stack([fit.curves for fit in fits], axis=1),
        **_tested(fits, recipe),
        **filter_pictures(model, work.spectra, tested, recipe.matrix),
        **graph_insights(graphs, tested, model, recipe, place.device),
    }
    if recipe.task == "regression" and _judge_the_same(splits):
        # Elsewhere, a run's test part may be another's training data.
        predicted = np.stack([fit.predicted[:, 0] for fit in fits]).astype(np.float64)
        arrays["calibration"] = spread_bins(predicted, fits[0].measured[:, 0])
    named = {f"molecules/{graphs.name}/{label}/{name}": array for name, array in arrays.items()}
    return Outcome(row, named, [fit.model for fit in fits], before)


def _fits(
    work: GraphWork, place: Workplace, checkpoint: Path | None, stage: str
) -> tuple[list[GraphFit], float]:
    """Train all runs; also returns the seconds of epochs that checkpoints held already."""
    recipe, runs, progress = work.recipe, len(work.splits), place.progress
    assert recipe.metric is not None
    # A forest's trees grow side by side, in threads.
    lanes = 1 if work.model == FOREST else min(place.lanes, runs)
    with TemporaryDirectory() if lanes > 1 and checkpoint is None else nullcontext() as folder:
        stem = Path(folder) / "run" if folder else checkpoint
        files = [stem and numbered(stem, run) for run in range(runs)]
        if lanes > 1:
            told, epochs = f"{stage}, {runs} runs in {lanes} lanes", runs * recipe.schedule.epochs
            with progress.stage(told, epochs, recipe.metric) as update:
                own = [LaneRun(work, run, file) for run, file in enumerate(files) if file]
                before = train_in_lanes(own, lanes, update)
            progress = Silent()  # only the lanes' checkpoints are left to read
        store, fits = work.store(), []
        for run, file in enumerate(files):
            told = stage + (f", run {run + 1}" if runs > 1 else "")
            with progress.stage(told, recipe.schedule.epochs, recipe.metric) as update:
                fits.append(
                    work.fit(store, run, workers=place.workers, checkpoint=file, on_epoch=update)
                )
    return fits, before if lanes > 1 else sum(fit.seconds_before for fit in fits)


def _tested(fits: Sequence[GraphFit], recipe: GraphRecipe) -> dict[str, np.ndarray]:
    """Predictions for the test graphs of all runs and their targets, ``[2, graphs, tasks]``.

    For one target with several classes, counts by true and predicted class, ``[classes, classes]``.
    """
    predicted = np.concatenate([fit.predicted for fit in fits])
    measured = np.concatenate([fit.measured for fit in fits])
    if recipe.loss == "ce":
        known = ~np.isnan(measured[:, 0])
        true, taken_for = measured[known, 0].astype(np.int64), predicted[known].argmax(axis=1)
        return {"confusion": confusion(true, taken_for, predicted.shape[1])}
    shown = predictions(recipe.loss, torch.from_numpy(predicted[:, :SHOWN].astype(np.float32)))
    return {"tested": np.stack([shown.numpy(), measured[:, :SHOWN].astype(np.float32)])}


def _figures(fits: Sequence[GraphFit], work: GraphWork) -> dict[str, Any]:
    """Test and validation figures at the kept epoch, and test figures by every rule.

    Where all runs have one test part, ``test_together`` is the test figure of their mean
    prediction, which is the one that ``predict`` gives. Of several targets, ``test_by_target`` has
    the figures of each; None where no run has one.
    """
    recipe = work.recipe

    def tested(rule: GraphMonitor) -> dict[str, Any]:
        return summary([fit.chosen[rule].test for fit in fits])

    kept = [fit.chosen[recipe.monitor] for fit in fits]
    figures: dict[str, Any] = {
        "test": tested(recipe.monitor),
        "val": summary([each.val for each in kept]),
        "best_epochs": [each.epoch for each in kept],
        "test_by_loss": tested("loss"),
        "test_by_metric": tested("metric"),
        # A run may have diverged after its best epoch.
        "test_at_end": tested("last") if all("last" in fit.chosen for fit in fits) else None,
    }
    assert recipe.metric is not None
    metric = metric_named(recipe.metric)
    if _judge_the_same(work.splits):
        outputs = torch.from_numpy(np.stack([fit.predicted for fit in fits])).double()
        mean = predictions(recipe.loss, outputs).mean(dim=0)
        if recipe.loss == "bce":
            mean -= 0.5  # as a logit, above 0 where the class is 1
        figures["test_together"] = metric(mean.numpy(), fits[0].measured)
    names = target_names(work.graphs.task_names, work.graphs.num_tasks)
    if len(names) > 1:
        runs = [metric.each(fit.predicted, fit.measured) for fit in fits]
        each = [[figure for figure in own if figure is not None] for own in zip(*runs, strict=True)]
        figures["test_by_target"] = {
            name: summary(known) if known else None for name, known in zip(names, each, strict=True)
        }
    return figures


def _judge_the_same(splits: Sequence[Split]) -> bool:
    """Whether there are several runs, with one test part."""
    return len(splits) > 1 and len({split.test.tobytes() for split in splits}) == 1


def base_prediction(work: GraphWork) -> list[float]:
    """The prediction of a model without input: mean targets, or the share of each class."""
    assert work.graphs.y is not None
    y = work.graphs.y[work.splits[0].train].astype(np.float64)
    if work.recipe.loss == "ce":
        known = y[~np.isnan(y[:, 0]), 0].astype(np.int64)
        counts = np.bincount(known, minlength=num_outputs(work.graphs, work.recipe))
        return [float(share) for share in counts / max(1, counts.sum())]
    counted = np.maximum(1, (~np.isnan(y)).sum(axis=0))
    return [float(mean) for mean in np.nan_to_num(y).sum(axis=0) / counted]


def _warn_of_parts(work: GraphWork) -> None:
    """Warn if validation graphs stand in for test graphs, and of targets that are all unknown."""
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
        names = np.array(target_names(graphs.task_names, graphs.num_tasks))
        logger.warning(
            "%s: no graph to learn from has a known %s; predictions of it mean nothing.",
            graphs.name,
            " or ".join(names[unknown]),
        )


def _describe(graphs: GraphSet, recipe: GraphRecipe, split: Split) -> str:
    targets = ""
    if graphs.num_tasks > 1:
        targets = f"; {graphs.num_tasks} targets, figures are means over them"
        if graphs.num_tasks > SHOWN:
            targets += f", predictions of the first {SHOWN} are drawn"
    elif graphs.task_names:
        targets = f"; the target is {graphs.task_names[0]}"
        if recipe.task == "regression" and graphs.y is not None:
            targets += f", with a standard deviation of {numbers.error(float(np.nanstd(graphs.y)))}"
    if recipe.loss == "ce":
        targets += f"; {num_outputs(graphs, recipe)} classes"
    protocol = recipe.split if split.is_tested else "its own"
    chemical = graphs.smiles is not None
    things, nodes, edges = (
        ("molecules", "atoms", "bonds") if chemical else ("graphs", "nodes", "edges")
    )
    return (
        f"{len(graphs):,} {things} of {graphs.num_nodes.mean():.1f} {nodes} and "
        f"{graphs.num_edges.mean():.1f} {edges} on average, the largest of "
        f"{int(graphs.num_nodes.max())} {nodes}; {split.in_words} ({protocol}){targets}"
    )
