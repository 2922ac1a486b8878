r"""Check that our loop and the plain loop give the same results: accuracies and losses."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Setting
from benchmarks.node_suite import RUNS, NodeCase, node_case, sizes, whole_features
from benchmarks.plain_loop import PlainTask, Reading, fit_plainly
from benchmarks.plain_node import PlainSpecformer
from specformer.datasets import Split
from specformer.nn import Specformer
from specformer.spectrum import Spectrum, decompose
from specformer.tasks.nodes.node_fit import landmark_error, node_landmarks
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.summaries import summary
from specformer.training.loops.nodes import NodeFit, fit_nodes
from specformer.training.runs.environment import matmul_precision
from specformer.training.runs.progress import Progress, Update

#: Rules that choose the epoch whose test accuracy counts: by validation loss or accuracy.
RULES = ("by_loss", "by_accuracy")
#: Epochs without dropout over which losses are compared.
LOSS_EPOCHS = 50
#: Numbers of landmarks whose errors are measured.
LANDMARKS = (64, 128, 256, 512)


@dataclass(frozen=True)
class SamePlan:
    """Number of splits, and the most epochs; None for the epochs of the recipe."""

    runs: int = RUNS
    epochs: int | None = None

    def capped(self, recipe: NodeRecipe) -> NodeRecipe:
        """The recipe with at most ``epochs`` epochs."""
        epochs = min(self.epochs or recipe.schedule.epochs, recipe.schedule.epochs)
        return replace(recipe, schedule=replace(recipe.schedule, epochs=epochs))


@dataclass(frozen=True)
class Accuracies:
    """Test accuracies of every run by both rules, its epochs, and the seconds of all runs."""

    by_loss: Sequence[float]
    by_accuracy: Sequence[float]
    epochs: Sequence[int]
    seconds: float

    def entry(self) -> dict[str, Any]:
        """Means, intervals and values, for JSON."""
        return {
            **{rule: summary(getattr(self, rule)) for rule in RULES},
            "epochs": float(np.mean(self.epochs)),
            "seconds": self.seconds,
        }


def bench_same(
    sources: Sequence[str], setting: Setting, plan: SamePlan
) -> Iterator[dict[str, Any]]:
    """One row per graph, each as soon as it is known, because a row takes minutes."""
    for source in sources:
        case = node_case(source, setting, runs=plan.runs)
        capped = replace(case, recipe=plan.capped(case.recipe))
        yield same_row(capped, setting.device, setting.progress)


def same_row(case: NodeCase, device: torch.device, progress: Progress) -> dict[str, Any]:
    """Train all loops on the splits of a case, and compare them.

    The row has :meth:`Accuracies.entry` for ``plain``, ``ours`` (our loop with the recipe) and
    ``exact`` (our loop with attention over all eigenvalues, in float32). The last two also have
    the result of :func:`compared`.
    """
    case = replace(case, spectrum=case.spectrum.to(device))
    exactly = replace(case.recipe, landmarks=None, precision="highest")
    apart = losses_apart(case, device)  # first, so that compilation is not timed below
    epochs = case.recipe.schedule.epochs
    with progress.stage(f"{case.name}: ours", epochs, "accuracy") as update:
        ours, models = train_ours(case, device, update)
    with progress.stage(f"{case.name}: exact", epochs, "accuracy") as update:
        exact, _ = train_ours(replace(case, recipe=exactly), device, update)
    with progress.stage(f"{case.name}: plain", len(case.splits), "accuracy") as update:
        plain = train_plainly(case, device, update)
    keys = node_landmarks(case.spectrum, case.recipe)
    found, reference = {"ours": ours.entry(), "exact": exact.entry()}, plain.entry()
    return {
        "case": case.name,
        "runs": len(case.splits),
        "splits": [split.fingerprint for split in case.splits],
        "plain": reference,
        **{name: {**entry, **compared(entry, reference)} for name, entry in found.items()},
        "landmarks": None if keys is None else len(keys.values),
        "landmark_errors": landmark_errors(models, case.spectrum, case.recipe),
        **apart,
        "loss_epochs": _loss_epochs(case),
        **sizes(case),
    }


def compared(found: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """By both rules: the difference of the means, and whether the reference's interval contains it.

    Example:
        >>> one, two = (
        ...     Accuracies([0.5], [0.6], [9], 1.0),
        ...     Accuracies([0.4, 0.6], [0.7, 0.7], [9, 9], 1.0),
        ... )
        >>> compared(one.entry(), two.entry())["inside"]
        {'by_loss': True, 'by_accuracy': False}
    """
    differences = {rule: found[rule]["mean"] - reference[rule]["mean"] for rule in RULES}
    widths = {rule: reference[rule]["ci95"] for rule in RULES}
    return {
        "difference": differences,
        "inside": {  # None if there is only one split, and so no interval
            rule: None if widths[rule] is None else abs(differences[rule]) <= widths[rule]
            for rule in RULES
        },
    }


def train_ours(
    case: NodeCase, device: torch.device, update: Update | None = None
) -> tuple[Accuracies, list[Specformer]]:
    """Train all splits together, as ``specformer train`` does; also returns the best models."""
    began = time.perf_counter()
    fresh = _fresh(case, len(case.splits))
    fit = _fit(fresh, case, device, update)
    trained = Accuracies(
        fit.by_loss.test.tolist(),
        fit.by_metric.test.tolist(),
        fit.epochs.tolist(),
        time.perf_counter() - began,
    )
    return trained, [unstack(fit.model, run, model) for run, model in enumerate(fresh)]


def train_plainly(case: NodeCase, device: torch.device, update: Update | None = None) -> Accuracies:
    """Train one split after another in the plain loop, from the same initial weights."""
    began = time.perf_counter()
    picked: list[list[Reading]] = []
    epochs = []
    for run in range(len(case.splits)):
        readings = plain_readings(case, run, device)
        # As in our loop: of equal epochs, the first.
        by_loss = min(readings, key=lambda reading: reading.val_loss)
        by_accuracy = max(readings, key=lambda reading: reading.val_accuracy)
        picked.append([by_loss, by_accuracy])
        epochs.append(len(readings))
        if update:
            update(run + 1, float(np.mean([chosen[0].val_accuracy for chosen in picked])))
    by_loss_test, by_accuracy_test = (
        [chosen[rule].test_accuracy for chosen in picked] for rule in range(len(RULES))
    )
    return Accuracies(by_loss_test, by_accuracy_test, epochs, time.perf_counter() - began)


def plain_readings(
    case: NodeCase,
    run: int,
    device: torch.device,
    order: np.ndarray | None = None,
    dtype: torch.dtype = torch.float32,
) -> list[Reading]:
    """The readings of every epoch of the plain loop on one split, with nodes in ``order``."""
    assert case.graph.y is not None
    spectrum = case.spectrum.to(device, dtype)
    order = np.arange(len(case.graph.y)) if order is None else order
    x = torch.as_tensor(whole_features(case.graph, case.recipe)[order]).to(device, dtype)
    vectors = spectrum.eigenvectors[torch.from_numpy(order).to(device)]
    split = case.splits[run]
    split = Split(split.train[order], split.val[order], split.test[order])
    model = PlainSpecformer.of(_fresh(case, run + 1)[run]).to(device, dtype)
    with matmul_precision("highest", device):
        return fit_plainly(
            model,
            lambda: cast(Tensor, model(x, spectrum.eigenvalues, vectors)),
            PlainTask.of(case.graph.y[order], split, device),
            case.recipe.schedule,
        )


def losses_apart(case: NodeCase, device: torch.device) -> dict[str, float | None]:
    """The largest differences of training losses on the first split, without dropout.

    Three differences: between our loop and the plain loop in float32; between the plain loop and
    itself with nodes in another order, which shows the effect of rounding alone; and between our
    loop and the plain loop in float64. At most :data:`LOSS_EPOCHS` epochs, with attention over all
    eigenvalues; None if they diverge.
    """
    epochs = _loss_epochs(case)
    recipe = replace(
        case.recipe,
        model=replace(
            case.recipe.model,
            transformer_dropout=0.0,
            feature_dropout=0.0,
            propagation_dropout=0.0,
        ),
        schedule=replace(case.recipe.schedule, epochs=epochs, patience=epochs),
        landmarks=None,
        precision="highest",
    )
    alone = replace(case, recipe=recipe, splits=case.splits[:1])
    moved = np.random.default_rng(0).permutation(case.graph.num_nodes)

    def ours(one: NodeCase, dtype: torch.dtype = torch.float32) -> np.ndarray:
        return _fit(_fresh(one, 1), one, device, dtype=dtype).curves[:, 0, 0].cpu().numpy()

    def plain(
        one: NodeCase, order: np.ndarray | None = None, dtype: torch.dtype = torch.float32
    ) -> np.ndarray:
        readings = plain_readings(one, 0, device, order, dtype)
        return np.array([reading.train_loss for reading in readings])

    def apart(one: np.ndarray, other: np.ndarray) -> float | None:
        return _finite(float(np.abs(one - other).max()))

    reference = plain(alone)
    # Solve again in float64: our loop needs orthogonal eigenvectors, and float32 rounds them.
    double = torch.float64
    anew = decompose(case.graph, k=recipe.pairs, dtype=double, device=device)
    solved = replace(alone, spectrum=anew)
    return {
        "losses_apart": apart(ours(alone), reference),
        "losses_apart_by_order": apart(plain(alone, moved), reference),
        "losses_apart_in_float64": apart(ours(solved, double), plain(solved, dtype=double)),
    }


@torch.no_grad()
def landmark_errors(
    models: Sequence[Specformer], spectrum: Spectrum, recipe: NodeRecipe
) -> dict[str, float | None]:
    """By number of landmarks: the filter's error against exact attention, for the worst model.

    This is the largest difference, relative to the exact filter's largest value, in float32. None
    if the spectrum has no more eigenvalues than landmarks.
    """
    errors: dict[str, float | None] = {}
    with matmul_precision("highest", spectrum.device):
        for count in LANDMARKS:
            keys = node_landmarks(spectrum, replace(recipe, landmarks=count))
            found = None if keys is None else landmark_error(models, spectrum, keys)
            errors[str(count)] = None if found is None else _finite(found)
    return errors


def _fit(
    fresh: Sequence[Specformer],
    case: NodeCase,
    device: torch.device,
    update: Update | None = None,
    dtype: torch.dtype = torch.float32,
) -> NodeFit:
    """Train all splits of a case in our loop."""
    spectrum, recipe = case.spectrum.to(device, dtype), case.recipe
    task = case.work(len(case.splits)).task(device)
    if dtype != torch.float32:
        x = torch.as_tensor(whole_features(case.graph, recipe)).to(device, dtype)
        task, fresh = replace(task, x=x), [model.to(dtype) for model in fresh]
    keys = node_landmarks(spectrum, recipe)
    with matmul_precision(recipe.precision, device):
        return fit_nodes(
            fresh, task, spectrum, recipe.schedule, monitor=recipe.monitor, landmarks=keys,
            on_progress=update,
        )  # fmt: skip


def _fresh(case: NodeCase, runs: int) -> list[Specformer]:
    """The untrained models of the first runs. Leaves the random state after the last one's seed."""
    return cast(list[Specformer], case.work(runs).fresh_models())


def _loss_epochs(case: NodeCase) -> int:
    return min(LOSS_EPOCHS, case.recipe.schedule.epochs)


def _finite(value: float) -> float | None:
    """The value, or None if JSON cannot store it."""
    return value if math.isfinite(value) else None
