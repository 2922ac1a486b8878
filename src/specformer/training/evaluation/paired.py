r"""Which of several models are better than which, judged by the same splits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

#: A difference holds where chance would give a larger one less often than this.
LEVEL = 0.05


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], overlap: float = 0.0
) -> dict[str, float | None]:
    r"""The mean difference of two models over the same splits, and what chance has to say of it.

    With d the differences, s their standard deviation and k their number:

    .. math::
        t = \bar d \,/\, \sqrt{(1/k + \rho)\, s^2}

    against Student's t with k - 1 degrees of freedom. Without ``overlap`` this is the paired
    t-test. Splits drawn from the same data share training data, so that their differences are not
    independent: ρ, the size of the test part over that of the training part, makes up for it
    (Nadeau and Bengio, 2003).

    Args:
        ours: one figure per split.
        theirs: the other model's, in the same order.
        overlap: ρ; 0 where splits share nothing, or where one split serves all runs.

    Returns:
        ``mean`` (ours minus theirs), ``ci95`` (half of the 95% interval) and ``p`` (two-sided).
        ``ci95`` and ``p`` are None of a single split. ``p`` is also None where the differences
        are all the same and not 0: without a spread there is nothing to judge them by.

    Example:
        >>> found = paired_difference([0.9, 0.8, 0.7], [0.8, 0.8, 0.6])
        >>> round(found["mean"], 4), round(found["p"], 4)
        (0.0667, 0.1835)
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
        "ci95": float(stats.t.ppf(0.975, count - 1)) * error,
        "p": float(2 * stats.t.sf(abs(mean) / error, count - 1)),
    }


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """P-values of several tests, adjusted so that any false alarm among all is as rare as of one.

    Holm's (1979) steps down: the smallest of m is multiplied by m, the next by m - 1, and so on.
    Tests without a p-value count as if they were not there.

    Example:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = sorted((p, number) for number, p in enumerate(chances) if p is not None)
    adjusted: list[float | None] = [None] * len(chances)
    largest = 0.0
    for rank, (p, number) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        adjusted[number] = largest
    return adjusted


def paired_differences(
    figures: Mapping[str, Sequence[float]], *, lower: bool = False, overlap: float = 0.0
) -> list[dict[str, Any]]:
    """Every pair of models, the better one first, adjusted for all of them together.

    As all pairs count, it does not matter which is looked at after the figures are known: the best
    against each other one, say.

    Args:
        figures: one figure per split, by model.
        lower: whether less is better.
        overlap: see :func:`paired_difference`.

    Returns:
        For each pair ``model``, ``against``, ``mean`` (the first's figure minus the other's),
        ``ci95``, ``p``, ``p_holm`` (see :func:`holm`) and ``holds``: whether that is below 0.05,
        None where there is no p-value.

    Example:
        >>> found = paired_differences({"gcn": [0.8, 0.7, 0.75], "mlp": [0.7, 0.61, 0.66]})
        >>> found[0]["model"], round(found[0]["mean"], 3), found[0]["holds"]
        ('gcn', 0.093, True)
    """
    sign = 1.0 if lower else -1.0
    ranked = sorted(figures, key=lambda name: sign * float(np.mean(figures[name])))
    pairs = list(combinations(ranked, 2))
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
