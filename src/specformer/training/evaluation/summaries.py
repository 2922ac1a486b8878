r"""Summaries of several runs, and of which classes were taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats


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
