r"""Summaries of several runs, and tests of which models are better than others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy import special

#: Bins of spreads, with at least ten graphs each.
_BINS = 6


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, half-width of the 95% confidence interval (Student's t) and the values themselves."""
    numbers = [float(value) for value in values]
    return {"mean": float(np.mean(numbers)), "ci95": ci95(numbers), "values": numbers}


def confusion(true: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Counts of true by predicted class ``[classes, classes]``."""
    pairs = np.bincount(classes * true + predicted, minlength=classes**2)
    return pairs.reshape(classes, classes)


def ci95(values: Sequence[float]) -> float | None:
    """Half-width of the 95% confidence interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    deviation = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(special.stdtrit(len(values) - 1, 0.975) * deviation)


def interval95(mean: float, ci95: float) -> tuple[float, float]:
    r"""The 95% interval of a mean of fractions, within 0 and 1.

    It is mean ± ``ci95``, Student's. Where that leaves [0, 1], it is Student's interval of the
    log-odds, whose half-width is ``ci95 / (mean (1 - mean))`` to first order.
    """
    low, high = mean - ci95, mean + ci95
    if (low >= 0.0 and high <= 1.0) or not 0.0 < mean < 1.0:
        return max(0.0, low), min(1.0, high)
    middle, half = special.logit(mean), ci95 / (mean * (1.0 - mean))
    return float(special.expit(middle - half)), float(special.expit(middle + half))


def wilson95(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share that was found among ``count``."""
    if count < 1:
        return 0.0, 1.0
    z = float(special.ndtri(0.975))
    weight = z * z / count
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * (share * (1 - share) / count + weight / (4 * count)) ** 0.5
    return centre - half, centre + half


def spread_bins(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Whether models that disagree are wrong: errors of their mean beside their spread.

    Rows of about as many graphs each, in order of the spread, which is the standard deviation over
    models: root mean squares of spread and error, and the count. Equal ones mean that the spread is
    as large as the error.

    Shapes: predicted ``[models, n]``, at least two models; measured ``[n]``, NaN where unknown.
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


#: A difference holds where chance would give a larger one less often than this.
LEVEL = 0.05


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], overlap: float = 0.0
) -> dict[str, float | None]:
    r"""The mean difference of two models over the same splits, and its p-value.

    With d the differences, s their standard deviation and k their number:

    .. math::
        t = \bar d \,/\, \sqrt{(1/k + \rho)\, s^2}

    against Student's t with k - 1 degrees of freedom. Without ``overlap`` this is the paired
    t-test. Splits drawn from the same data share training data, so that their differences are not
    independent: ρ (``overlap``), the size of the test part over that of the training part, makes
    up for it (Nadeau and Bengio, 2003). It is 0 where splits share nothing, or where one split
    serves all runs.

    The answer has ``mean`` (ours minus theirs), ``ci95`` (half of the 95% interval) and ``p``
    (two-sided). ``ci95`` and ``p`` are None of a single split. ``p`` is also None where the
    differences are all the same and not 0: without a spread there is nothing to judge them by.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} figures: pairs need as many of both.")
    figures = np.asarray([ours, theirs], float)
    differences = figures[0] - figures[1]
    mean, count = float(differences.mean()), len(differences)
    if count < 2:
        return {"mean": mean, "ci95": None, "p": None}
    rounding = 1e-6 * float(np.abs(figures).max())  # of figures in float32
    if np.ptp(differences) <= rounding:
        return {"mean": mean, "ci95": 0.0, "p": None if abs(mean) > rounding else 1.0}
    error = float(np.std(differences, ddof=1)) * math.sqrt(1 / count + overlap)
    return {
        "mean": mean,
        "ci95": float(special.stdtrit(count - 1, 0.975)) * error,
        "p": float(2 * special.stdtr(count - 1, -abs(mean) / error)),
    }


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """P-values of several tests, adjusted so that any false alarm is as rare as in one test.

    Holm's (1979) steps down: the smallest of m is multiplied by m, the next by m - 1, and so on.
    Tests without a p-value count as if they were not there.
    """
    order = sorted((p, number) for number, p in enumerate(chances) if p is not None)
    adjusted: list[float | None] = [None] * len(chances)
    largest = 0.0
    for rank, (p, number) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        adjusted[number] = largest
    return adjusted


def paired_differences(
    figures: Mapping[str, Sequence[float]], overlap: float = 0.0
) -> list[dict[str, Any]]:
    """Every pair of models, in their order, adjusted for all of them together.

    As all pairs count, any of them may be picked after the figures are known, such as the best
    model against the others.

    Each pair has ``model``, ``against``, ``mean`` (the first's figure minus the other's), ``ci95``,
    ``p``, ``p_holm`` (see :func:`holm`) and ``holds``: whether that is below 0.05, None where
    there is no p-value.
    """
    pairs = list(combinations(figures, 2))
    found = [paired_difference(figures[one], figures[other], overlap) for one, other in pairs]
    adjusted = holm([each["p"] for each in found])
    return [
        {
            "model": one,
            "against": other,
            **each,
            "p_holm": p,
            "holds": None if p is None else p < LEVEL,
        }
        for (one, other), each, p in zip(pairs, found, adjusted, strict=True)
    ]
