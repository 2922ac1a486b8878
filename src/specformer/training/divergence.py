r"""Runs whose loss became no number: told in one way, whatever was trained."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from specformer.errors import RunError

logger = logging.getLogger(__name__)


#: What helps most often.
REMEDY = "a lower schedule.learning_rate"


def diverged(what: str, remedy: str = REMEDY) -> RunError:
    """The error of a training in which ``what`` had no number to go by.

    Example:
        >>> print(diverged("no epoch had a finite loss"))
        training diverged: no epoch had a finite loss. To go on would not help: start a new run \
with a lower schedule.learning_rate.
    """
    return RunError(
        f"training diverged: {what}. To go on would not help: start a new run with {remedy}."
    )


def refuse_lost(losses: np.ndarray, lost: np.ndarray, remedy: str = REMEDY) -> None:
    """Refuse the outcome of several runs if some of them have no model.

    Args:
        losses: ``[epochs, runs]``, not finite from the epoch on in which a run diverged.
        lost: ``[runs]`` whether a run has no model.
        remedy: what to start a new run with.

    Example:
        >>> refuse_lost(np.array([[0.7, 0.7], [0.6, np.nan]]), np.array([False, True]))
        Traceback (most recent call last):
        specformer.errors.RunError: training diverged: run 2 of 2 has no model, as its loss was \
not finite from epoch 2 on. To go on would not help: start a new run with a lower \
schedule.learning_rate.
    """
    if not lost.any():
        return
    numbers = [str(run + 1) for run in np.flatnonzero(lost)]
    several = len(numbers) > 1
    which = f"runs {', '.join(numbers)}" if several else f"run {numbers[0]}"
    why = "have no model, as their loss" if several else "has no model, as its loss"
    first = int((~np.isfinite(losses[:, lost])).any(axis=1).argmax()) + 1
    raise diverged(f"{which} of {len(lost)} {why} was not finite from epoch {first} on", remedy)


def warn_of_divergence(what: str, losses: Sequence[np.ndarray]) -> None:
    """Say which runs diverged late; the losses are those of the epochs each run took."""
    for number, curve in enumerate(losses, start=1):
        lost = ~np.isfinite(curve)
        if lost.any():
            logger.warning(
                "%s: run %d of %d diverged in epoch %d; the best model before is kept.",
                what,
                number,
                len(losses),
                lost.argmax() + 1,
            )
