r"""The same results: accuracies and losses of ours beside those of the plain loop."""

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
from specformer.tasks.nodes.node_fit import landmark_error
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.nodes.node_work import node_landmarks
from specformer.training.engine.precision import matmul_precision
from specformer.training.engine.stacking import unstack
from specformer.training.evaluation.summaries import summary
from specformer.training.loops.nodes import NodeFit, fit_nodes
from specformer.training.runs.progress import Progress, Update

#: What picks the epoch whose test accuracy counts: lowest validation loss, highest accuracy.
RULES = ("by_loss", "by_accuracy")
#: Epochs without dropout over which losses are compared.
LOSS_EPOCHS = 50
#: Numbers of landmarks whose errors are shown.
LANDMARKS = (64, 128, 256, 512)


@dataclass(frozen=True)
class SamePlan:
    """How many splits everyone trains on, and at most how many epochs; None: the recipe's."""

    runs: int = RUNS
    epochs: int | None = None

    def capped(self, recipe: NodeRecipe) -> NodeRecipe:
        """A recipe with no more epochs than that."""
        epochs = min(self.epochs or recipe.schedule.epochs, recipe.schedule.epochs)
        return replace(recipe, schedule=replace(recipe.schedule, epochs=epochs))


@dataclass(frozen=True)
class Accuracies:
    """Test accuracies of every run by either rule, epochs it trained, and seconds of all."""

    by_loss: Sequence[float]
    by_accuracy: Sequence[float]
    epochs: Sequence[int]
    seconds: float

    def entry(self) -> dict[str, Any]:
        """Means, intervals and values, ready for JSON."""
        return {
            **{rule: summary(getattr(self, rule)) for rule in RULES},
            "epochs": float(np.mean(self.epochs)),
            "seconds": self.seconds,
        }


def bench_same(
    sources: Sequence[str], setting: Setting, plan: SamePlan
) -> Iterator[dict[str, Any]]:
    """One row per graph, each as soon as it is known: they take minutes."""
    for source in sources:
        case = node_case(source, setting, runs=plan.runs)
        capped = replace(case, recipe=plan.capped(case.recipe))
        yield same_row(capped, setting.device, setting.progress)


def same_row(case: NodeCase, device: torch.device, progress: Progress) -> dict[str, Any]:
    """Train everyone on the splits of a case and compare.

    ``plain``, ``ours`` (as the recipe says) and ``exact`` (attention over all eigenvalues, float32)
    hold :meth:`Accuracies.entry`; the latter two also what :func:`compared` says.
    """
    case = replace(case, spectrum=case.spectrum.to(device))
    exactly = replace(case.recipe, landmarks=None, precision="highest")
    apart = losses_apart(case, device)  # first: what is compiled once is compiled now
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
    """By either rule: the difference of the means, and whether the reference's interval has it.

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
        "inside": {  # unknown where a single split leaves no interval
            rule: None if widths[rule] is None else abs(differences[rule]) <= widths[rule]
            for rule in RULES
        },
    }


def train_ours(
    case: NodeCase, device: torch.device, update: Update | None = None
) -> tuple[Accuracies, list[Specformer]]:
    """All splits together, as ``specformer train`` does; also every run's best model."""
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
    """The plain loop on one split after another, from the weights that ours start with."""
    began = time.perf_counter()
    picked: list[list[Reading]] = []
    epochs = []
    for run in range(len(case.splits)):
        readings = plain_readings(case, run, device)
        # As in our loop: the first of equal epochs.
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
    """What the host reads of every epoch of the plain loop on one split, nodes in that order."""
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

    Of ours from the plain loop in float32; of the plain loop with its nodes in another order from
    itself, which is what rounding alone makes; and of ours from the plain loop in float64. Over
    :data:`LOSS_EPOCHS` epochs at most, attention over all eigenvalues; None if they diverge.
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
    # Solved anew: ours relies on orthogonal eigenvectors, which float32 has only up to rounding.
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
    """By number of landmarks: how far filters are from exact attention's, at the worst model.

    The largest difference relative to the exact filter's largest value, in float32. None where a
    spectrum has no more eigenvalues than that.
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
    """All splits of a case in our loop."""
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
    """The untrained models of the first runs; random numbers go on from the last one's seed."""
    return cast(list[Specformer], case.work(runs).fresh_models())


def _loss_epochs(case: NodeCase) -> int:
    return min(LOSS_EPOCHS, case.recipe.schedule.epochs)


def _finite(value: float) -> float | None:
    """What JSON can hold."""
    return value if math.isfinite(value) else None
