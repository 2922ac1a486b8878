r"""Equal eigenvalues as one token with a multiplicity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Sorted eigenvalues closer than this to their neighbour are taken as one repeated eigenvalue.
#: Solvers work in float64, where equal eigenvalues come out within about 1e-12 of each other, while
#: different ones are rarely nearer than 1e-7 even among ten thousand.
EQUAL_TOLERANCE = 1e-8
#: The same by the precision of a solve. One in float32 ends with refined eigenvalues, see
#: :func:`specformer.spectrum.eigenpairs.refined`, and equal ones lie within about 1e-9.
EQUAL = {torch.float32: 1e-7, torch.float64: EQUAL_TOLERANCE}


class Tokens(NamedTuple):
    """Points of the spectrum with weights: what attention runs over.

    Shapes: values ``[p]``, weights ``[p]`` (multiplicities, or quadrature weights).
    """

    values: Tensor
    weights: Tensor


class Distinct(NamedTuple):
    """The different eigenvalues and how often each occurs.

    Shapes: values and counts ``[p]``, index ``[q]``: the place of every eigenvalue's value.
    """

    values: Tensor
    counts: Tensor
    index: Tensor  # type: ignore[assignment]  # tuples have a method of this name

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.values, self.counts)


def distinct(eigenvalues: Tensor) -> Distinct:
    """Group eigenvalues that are equal to the bit, in any order. Groups carry no gradient.

    Example:
        >>> distinct(torch.tensor([0.0, 1.0, 1.0, 2.0])).counts.tolist()
        [1.0, 2.0, 1.0]
    """
    fixed = eigenvalues.detach()
    values, index, counts = torch.unique(fixed, return_inverse=True, return_counts=True)
    return Distinct(values, counts.to(values.dtype), index)


def singly(eigenvalues: Tensor) -> Tokens:
    """Every eigenvalue as a token of its own, equal or not."""
    return Tokens(eigenvalues, torch.ones_like(eigenvalues))


def group_starts(eigenvalues: np.ndarray, tolerance: float = EQUAL_TOLERANCE) -> np.ndarray:
    """First position of every group of equal eigenvalues, ascending along the last axis.

    Positions are those of the flat array: no group goes on in the next row.

    Example:
        >>> group_starts(np.array([[0.0, 1.0, 1.0 + 1e-12], [1.0, 1.0, 2.0]])).tolist()
        [0, 1, 3, 5]
    """
    begins = np.ones(eigenvalues.shape, dtype=bool)
    begins[..., 1:] = np.diff(eigenvalues) > tolerance
    return np.flatnonzero(begins)


def snap(
    eigenvalues: np.ndarray, tolerance: float = EQUAL_TOLERANCE, lowest: float = 0.0
) -> np.ndarray:
    """Give equal eigenvalues of a graph, a row ``[..., q]``, their mean, clipped to two units.

    After this, equality to the bit is the one definition of a repeated eigenvalue.
    They ascend along the last axis. The spectrum goes from ``lowest`` to ``lowest + 2``.
    """
    if eigenvalues.size == 0:
        return eigenvalues
    starts = group_starts(eigenvalues, tolerance)
    sizes = np.diff(np.append(starts, eigenvalues.size))
    means = whole_numbers(np.add.reduceat(eigenvalues.ravel(), starts) / sizes, tolerance)
    return np.repeat(means.clip(lowest, lowest + 2.0), sizes).reshape(eigenvalues.shape)


def whole_numbers(eigenvalues: np.ndarray, tolerance: float) -> np.ndarray:
    """Eigenvalues that are whole numbers in exact arithmetic should say so, not 3e-17."""
    whole = np.round(eigenvalues) + 0.0  # no -0.0
    return np.where(np.abs(eigenvalues - whole) <= tolerance, whole, eigenvalues)
