r"""How good predictions for many graphs are: OGB's metrics, with missing targets left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from specformer.errors import ConfigError, check_known

Numbers = NDArray[np.floating]


@dataclass(frozen=True)
class Metric:
    """A figure of merit.

    Args:
        name: as recipes and results have it.
        label: as people read it.
        of: the figure of one task from its predictions and known targets, ``[n]`` both.
        task: what its targets are: numbers, or classes whose predictions are logits.
        lower: whether less is better.
        classes: whether a task counts only if its known targets hold both classes.
        several: whether it also judges a task of several classes, by logits ``[n, classes]``.
    """

    name: str
    label: str
    of: Callable[[Numbers, Numbers], float]
    task: Literal["regression", "classification"]
    lower: bool
    classes: bool = False
    several: bool = False

    def __call__(self, predictions: Numbers, targets: Numbers) -> float:
        """The mean over tasks.

        Args:
            predictions: ``[G, tasks]``; logits or probabilities where targets are classes. Of one
                task of several classes, ``[G, classes]``.
            targets: ``[G, tasks]``, NaN where missing.
        """
        figures = [figure for figure in self.each(predictions, targets) if figure is not None]
        if not figures:
            self.check(targets)
        return float(np.mean(figures))

    def each(self, predictions: Numbers, targets: Numbers) -> list[float | None]:
        """The figure of every task; None where there is none to be had."""
        if self.several and targets.shape[1] == 1 < predictions.shape[1]:
            predictions = predictions[:, None]
        elif predictions.shape != targets.shape:
            raise ValueError(f"predictions {predictions.shape}, targets {targets.shape}")
        known = ~np.isnan(targets)
        return [
            self.of(np.asarray(predictions[rows, task], float), targets[rows, task])
            if self._counts(targets[rows, task])
            else None
            for task, rows in enumerate(known.T)
        ]

    def check(self, targets: Numbers) -> None:
        """Refuse targets ``[G, tasks]`` that no figure can be had of."""
        known = ~np.isnan(targets)
        if not any(self._counts(targets[rows, task]) for task, rows in enumerate(known.T)):
            needs = "graphs of both classes" if self.classes else "a known target"
            other = "; metric=accuracy does not" if self.classes else ""
            raise ConfigError(f"{self.name} needs {needs} in every part of a split{other}.")

    def _counts(self, targets: Numbers) -> bool:
        if self.classes:
            return bool((targets == 1).any() and (targets == 0).any())
        return len(targets) > 0

    def score(self, figure: float) -> float:
        """The figure so that less is better."""
        return figure if self.lower else -figure


def mae(predictions: Numbers, targets: Numbers) -> float:
    """Mean absolute error."""
    return float(np.abs(predictions - targets).mean())


def rmse(predictions: Numbers, targets: Numbers) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.square(predictions - targets).mean()))


def rocauc(predictions: Numbers, targets: Numbers) -> float:
    r"""Area under the receiver operating characteristic.

    From the ranks r of the positives among all (Mann and Whitney), ties sharing theirs:
    :math:`(\sum r - P(P+1)/2) / (P N)`.

    Example:
        >>> rocauc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0.0, 0.0, 1.0, 1.0]))
        0.75
    """
    positive = targets == 1
    count = int(positive.sum())
    surplus = rankdata(predictions)[positive].sum() - count * (count + 1) / 2
    return float(surplus / (count * (len(targets) - count)))


def average_precision(predictions: Numbers, targets: Numbers) -> float:
    r"""Area under steps of precision over recall, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    One step a distinct prediction, the largest first.

    Example:
        >>> round(average_precision(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])), 4)
        0.8333
    """
    order = np.argsort(-predictions, kind="stable")
    ordered = predictions[order]
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    hits = np.cumsum(targets[order] == 1)[last]
    precision = hits / (last + 1)
    return float((np.diff(hits, prepend=0) * precision).sum() / hits[-1])


def accuracy(predictions: Numbers, targets: Numbers) -> float:
    """Share of graphs whose class has the largest logit ``[n, classes]``.

    Of two classes the logit ``[n]`` is that of 1 beside a 0.

    Example:
        >>> accuracy(np.array([[0.1, 0.4, 0.2], [0.3, 0.1, 0.2]]), np.array([1.0, 2.0]))
        0.5
    """
    chosen = predictions > 0 if predictions.ndim == 1 else predictions.argmax(axis=1)
    return float((chosen == targets).mean())


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("mae", "MAE", mae, "regression", lower=True),
        Metric("rmse", "RMSE", rmse, "regression", lower=True),
        Metric("rocauc", "ROC-AUC", rocauc, "classification", lower=False, classes=True),
        Metric("ap", "AP", average_precision, "classification", lower=False, classes=True),
        Metric("accuracy", "accuracy", accuracy, "classification", lower=False, several=True),
    )
}


def metric_named(name: str) -> Metric:
    """The metric of that name.

    Example:
        >>> metric_named("mae").lower
        True
    """
    check_known("metric", METRICS, name)
    return METRICS[name]
