r"""Summaries of several runs."""

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
