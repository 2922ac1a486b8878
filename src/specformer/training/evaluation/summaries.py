r"""Summaries of several runs, and of which classes were taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special, stats

#: Bins of spreads, with at least ten graphs each.
_BINS = 6


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, half-width of the 95% confidence interval (Student's t) and the values themselves.

    Example:
        >>> summary([1.0, 2.0, 3.0])["mean"]
        2.0
    """
    numbers = [float(value) for value in values]
    return {"mean": float(np.mean(numbers)), "ci95": ci95(numbers), "values": numbers}


def confusion(true: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How often each class was taken for each, true by predicted ``[classes, classes]``.

    Example:
        >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
        [[1, 0], [1, 1]]
    """
    pairs = np.bincount(classes * true + predicted, minlength=classes**2)
    return pairs.reshape(classes, classes)


def ci95(values: Sequence[float]) -> float | None:
    """Half-width of the 95% confidence interval of the mean; None for fewer than two values.

    Example:
        >>> round(ci95([1.0, 2.0, 3.0]), 4)
        2.4841
    """
    if len(values) < 2:
        return None
    deviation = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(stats.t.ppf(0.975, len(values) - 1) * deviation)


def interval95(mean: float, ci95: float) -> tuple[float, float]:
    r"""The 95% interval of a mean of fractions, within 0 and 1.

    It is mean ± ``ci95``, Student's. Where that leaves [0, 1], it is Student's interval of the
    log-odds, whose half-width is ``ci95 / (mean (1 - mean))`` to first order.

    Example:
        >>> [round(end, 3) for end in interval95(0.9, 0.05)]
        [0.85, 0.95]
        >>> [round(end, 3) for end in interval95(0.97, 0.05)]
        [0.853, 0.994]
    """
    low, high = mean - ci95, mean + ci95
    if (low >= 0.0 and high <= 1.0) or not 0.0 < mean < 1.0:
        return max(0.0, low), min(1.0, high)
    middle, half = special.logit(mean), ci95 / (mean * (1.0 - mean))
    return float(special.expit(middle - half)), float(special.expit(middle + half))


def wilson95(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share that was found among ``count``.

    Example:
        >>> [round(end, 3) for end in wilson95(0.5, 10)]
        [0.237, 0.763]
    """
    if count < 1:
        return 0.0, 1.0
    z = float(stats.norm.ppf(0.975))
    weight = z * z / count
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * (share * (1 - share) / count + weight / (4 * count)) ** 0.5
    return centre - half, centre + half


def spread_bins(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Whether models that differ are wrong: errors of their mean beside their spread.

    Rows of about as many graphs each, in order of the spread, which is the standard deviation over
    models: root mean squares of spread and error, and the count. Equal ones mean that the spread is
    as large as the error.

    Args:
        predicted: ``[models, n]``, at least two models.
        measured: ``[n]``, NaN where unknown.

    Example:
        >>> spread_bins(np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([5.0, 4.0])).round(2).tolist()
        [[1.0, 3.54, 2.0]]
    """
    known = ~np.isnan(measured)
    spread = predicted[:, known].std(axis=0, ddof=1)
    errors = predicted[:, known].mean(axis=0) - measured[known]
    bins = np.array_split(np.argsort(spread, kind="stable"), max(1, min(_BINS, len(errors) // 10)))
    return np.array(
        [
            [np.sqrt(np.mean(spread[own] ** 2)), np.sqrt(np.mean(errors[own] ** 2)), len(own)]
            for own in bins
            if len(own)
        ]
    ).reshape(-1, 3)
