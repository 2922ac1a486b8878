r"""Losses of training and metrics of predictions, with missing targets left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from specformer.errors import ConfigError, check_known

#: Two for numbers, one for targets of 0 and 1, and one for a single target of several classes.
Loss = Literal["l1", "mse", "bce", "ce"]


def graph_errors(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The error of every output, zero where the target is missing, and which targets are known.

    Shapes: all ``[B, tasks]``; with ``"ce"`` the outputs are logits ``[B, classes]`` and the rest
    ``[B, 1]``. Outputs ``[B, 1]`` and targets ``[B]`` are refused: PyTorch would compare every
    output with every target.
    """
    expected = outputs.shape if loss != "ce" else (len(outputs), 1)
    if targets.shape != expected:
        raise ValueError(f"outputs {list(outputs.shape)} and targets {list(targets.shape)} differ.")
    known = ~targets.isnan()
    wanted = targets.nan_to_num().to(outputs.dtype if loss != "ce" else torch.long)
    if loss == "ce":
        errors = nn.functional.cross_entropy(outputs, wanted[:, 0], reduction="none").unsqueeze(1)
    elif loss == "l1":
        errors = (outputs - wanted).abs()
    elif loss == "mse":
        errors = (outputs - wanted).square()
    else:
        errors = nn.functional.binary_cross_entropy_with_logits(outputs, wanted, reduction="none")
    return errors * known, known


def mean_error(loss: Loss, outputs: Tensor, targets: Tensor) -> float:
    """The mean error over all known targets."""
    errors, known = graph_errors(loss, outputs.detach(), targets)
    return float(errors.sum() / known.sum().clamp_min(1))


def predictions(loss: Loss | None, outputs: Tensor) -> Tensor:
    """Outputs as people read them: logits as probabilities, numbers as they are."""
    if loss == "ce":
        return outputs.softmax(dim=-1)
    return outputs.sigmoid() if loss == "bce" else outputs


class Scale(NamedTuple):
    """Mean and standard deviation ``[tasks]`` of targets, which are standardised for training."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, targets: Tensor) -> Scale:
        """The scale of known targets ``[n, tasks]``; a constant target is only shifted."""
        known = ~targets.isnan()
        count = known.sum(dim=0).clamp_min(1)
        wide = targets.double()  # the squares of 1e20 do not fit float32, nor do those of 1e-25
        mean = wide.nan_to_num().sum(dim=0) / count
        var = ((wide - mean).nan_to_num().square() * known).sum(dim=0) / count
        std = var.sqrt().to(targets)
        # Of a constant, the deviation may be what rounding left of the mean.
        low, high = targets.nan_to_num(torch.inf).amin(0), targets.nan_to_num(-torch.inf).amax(0)
        varies = (low < high) & (std > 0)
        return cls(mean.to(targets), torch.where(varies, std, torch.ones_like(std)))

    @classmethod
    def none(cls, tasks: int, device: torch.device) -> Scale:
        """The scale that changes nothing."""
        return cls(torch.zeros(tasks, device=device), torch.ones(tasks, device=device))

    def standardised(self, targets: Tensor) -> Tensor:
        return (targets - self.mean) / self.std

    def original(self, outputs: Tensor) -> Tensor:
        """Back in the targets' own units."""
        return outputs * self.std.to(outputs) + self.mean.to(outputs)

    @torch.no_grad()
    def fold_into(self, readout: nn.Linear) -> None:
        """Change a last layer so that it puts out the targets' own units."""
        readout.weight.mul_(self.std.to(readout.weight).unsqueeze(-1))
        readout.bias.copy_(self.original(readout.bias))


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
        varied: whether a task counts only if its known targets are not all the same.
        several: whether it also judges a task of several classes, by logits ``[n, classes]``.
    """

    name: str
    label: str
    of: Callable[[Numbers, Numbers], float]
    task: Literal["regression", "classification"]
    lower: bool
    varied: bool = False
    several: bool = False

    def __call__(self, predictions: Numbers, targets: Numbers) -> float:
        """The mean over tasks, of targets ``[G, tasks]``, NaN where missing.

        Predictions ``[G, tasks]`` are logits or probabilities where targets are classes. Of one
        task of several classes they are ``[G, classes]``.
        """
        figures = [figure for figure in self.each(predictions, targets) if figure is not None]
        if not figures:
            self.check(targets)
        return float(np.mean(figures))

    def each(self, predictions: Numbers, targets: Numbers) -> list[float | None]:
        """The figure of every task; None where it is not defined."""
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

    def check(self, targets: Numbers, things: str = "graphs") -> None:
        """Refuse targets ``[G, tasks]`` for which no figure is defined; ``things`` have them."""
        known = ~np.isnan(targets)
        if not any(self._counts(targets[rows, task]) for task, rows in enumerate(known.T)):
            needs, other = "a known target", ""
            if self.varied and self.task == "classification":
                needs, other = f"{things} of both classes", "; --metric accuracy does not"
            elif self.varied:
                needs, other = "two different targets", "; --metric rmse does not"
            raise ConfigError(f"{self.name} needs {needs} in every part of a split{other}.")

    def _counts(self, targets: Numbers) -> bool:
        return len(targets) > 0 and not (self.varied and bool((targets == targets[0]).all()))

    def score(self, figure: float) -> float:
        """The figure so that less is better."""
        return figure if self.lower else -figure


def mae(predictions: Numbers, targets: Numbers) -> float:
    """Mean absolute error."""
    return float(np.abs(predictions - targets).mean())


def rmse(predictions: Numbers, targets: Numbers) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.square(predictions - targets).mean()))


def r_squared(predictions: Numbers, targets: Numbers) -> float:
    r"""Coefficient of determination, :math:`1 - \sum (p - t)^2 / \sum (t - \bar t)^2`."""
    spread = np.square(targets - targets.mean()).sum()
    return float(1.0 - np.square(predictions - targets).sum() / spread)


def rocauc(predictions: Numbers, targets: Numbers) -> float:
    r"""Area under the receiver operating characteristic.

    From the ranks r of the positives among all (Mann and Whitney), ties sharing theirs:
    :math:`(\sum r - P(P+1)/2) / (P N)`.
    """
    positive = targets == 1
    count = int(positive.sum())
    _, place, counts = np.unique(predictions, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[place]
    surplus = ranks[positive].sum() - count * (count + 1) / 2
    return float(surplus / (count * (len(targets) - count)))


def average_precision(predictions: Numbers, targets: Numbers) -> float:
    r"""Area under steps of precision over recall, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    One step per distinct prediction, the largest first.
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
    """
    return float((_classes(predictions) == targets).mean())


def macro_f1(predictions: Numbers, targets: Numbers) -> float:
    r"""Mean over classes of :math:`2 TP / (2 TP + FP + FN)`.

    Predictions are logits as :func:`accuracy` has them. Classes that are neither predicted nor
    there do not count.
    """
    chosen, found = _classes(predictions), []
    for label in np.union1d(chosen, targets):
        taken, there = chosen == label, targets == label
        found.append(2.0 * (taken & there).sum() / (taken.sum() + there.sum()))
    return float(np.mean(found))


def _classes(logits: Numbers) -> NDArray[np.integer]:
    return (logits > 0).astype(int) if logits.ndim == 1 else logits.argmax(axis=1)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("mae", "MAE", mae, "regression", lower=True),
        Metric("rmse", "RMSE", rmse, "regression", lower=True),
        Metric("r2", "R²", r_squared, "regression", lower=False, varied=True),
        Metric("rocauc", "ROC-AUC", rocauc, "classification", lower=False, varied=True),
        Metric("ap", "AP", average_precision, "classification", lower=False, varied=True),
        Metric("accuracy", "accuracy", accuracy, "classification", lower=False, several=True),
        Metric("f1", "macro-F1", macro_f1, "classification", lower=False, several=True),
    )
}


def metric_named(name: str) -> Metric:
    """The metric of that name."""
    check_known("metric", METRICS, name)
    return METRICS[name]


class Targets(NamedTuple):
    """A kind of targets, and the losses and metrics that go with it, the usual ones first."""

    told: str
    losses: tuple[Loss, ...]
    metrics: tuple[str, ...]

    def judged(self, name: str, loss: Loss | None, metric: str | None) -> tuple[Loss, str]:
        """The loss and the metric; the usual ones for None. ``name`` is the data's, for errors."""
        metric = metric_named(metric or self.metrics[0]).name
        loss = loss or ("l1" if metric == "mae" else self.losses[0])
        for what, chosen, known in (("metric", metric, self.metrics), ("loss", loss, self.losses)):
            if chosen not in known:
                raise ConfigError(
                    f"{name}: {what}={chosen} does not go with {self.told}; choose from "
                    f"{', '.join(known)}."
                )
        return loss, metric
