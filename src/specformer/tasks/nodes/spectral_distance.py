r"""How far the spectrum of another graph is from the one that a model was trained on.

A filter is learned where the eigenvalues of the training graph lie. Of another graph the same model
gives filters too, but nobody has checked them there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch

from specformer.spectrum import AnySpectrum, Spectrum

logger = logging.getLogger(__name__)

#: Quantiles that stand for a spectrum.
_LEVELS = 101
#: Less than this is rounding: the graph trained on.
_SAME = 1e-5
#: From this share of the reference on, predictions are to be doubted.
_FAR = 0.25


def quantiles(spectrum: AnySpectrum) -> list[float]:
    """Quantiles of the eigenvalues, or of their estimated density, ascending.

    Example:
        >>> from specformer.spectrum import decompose
        >>> found = quantiles(decompose([[0, 1, 2], [1, 2, 0]]))
        >>> found[0], round(found[-1], 4)
        (0.0, 1.5)
    """
    if isinstance(spectrum, Spectrum):
        levels = torch.linspace(0, 1, _LEVELS, dtype=torch.float64)
        values = torch.quantile(spectrum.eigenvalues.double().cpu(), levels)
    else:
        values = spectrum.quantiles(_LEVELS).double().cpu()
    found: list[float] = values.tolist()
    return found


def wasserstein(one: Sequence[float], other: Sequence[float]) -> float:
    """The mean distance between eigenvalues of the same rank, of two lists of quantiles.

    Example:
        >>> wasserstein([0.0, 1.0, 2.0], [0.5, 1.5, 2.5])
        0.5
    """
    return float(np.abs(np.subtract(one, other)).mean())


def spread(values: Sequence[float]) -> float:
    """The reference: how far quantiles are from a spectrum of one eigenvalue, their median.

    Example:
        >>> spread([0.0, 1.0, 2.0])
        0.6666666666666666
    """
    return float(np.abs(np.subtract(values, np.median(values))).mean())


def say_distance(trained: Sequence[float], spectrum: AnySpectrum, name: str) -> float:
    """Say how far a graph's spectrum is from the one trained on; returns the distance."""
    distance, reference = wasserstein(trained, quantiles(spectrum)), spread(trained)
    if distance < _SAME:
        return distance
    share = distance / max(reference, 1e-12)
    far = share > _FAR
    logger.log(
        logging.WARNING if far else logging.INFO,
        "%s: its eigenvalues are %.3f from those trained on, on average; those spread by %.3f "
        "(%.0f%%)%s",
        name, distance, reference, 100 * share,
        ", so that the filters are used where nobody has checked them" if far else "",
    )  # fmt: skip
    return distance
