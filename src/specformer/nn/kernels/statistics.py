r"""What batch normalisation hands to kernels."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Averages(NamedTuple):
    """Running averages of means and unbiased variances ``[columns]``, changed in place.

    Fewer rows than two leave them as they are.

    Args:
        mean, var: the averages.
        momentum: share of the newest batch.
        shift: ``[columns]`` added to the newest means.
    """

    mean: Tensor
    var: Tensor
    momentum: float
    shift: Tensor
