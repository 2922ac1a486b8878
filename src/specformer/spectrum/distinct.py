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
    """Every eigenvalue as a token of its own, equal or not.

    Example:
        >>> singly(torch.tensor([1.0, 1.0])).weights.tolist()
        [1.0, 1.0]
    """
    return Tokens(eigenvalues, torch.ones_like(eigenvalues))


def group_starts(eigenvalues: np.ndarray, tolerance: float = EQUAL_TOLERANCE) -> np.ndarray:
    """First position of every group of equal eigenvalues in an ascending array.

    Example:
        >>> group_starts(np.array([0.0, 1.0, 1.0 + 1e-12, 2.0])).tolist()
        [0, 1, 3]
    """
    gaps = np.diff(eigenvalues) > tolerance
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(eigenvalues)), dtype=bool), gaps]))


def snap(eigenvalues: np.ndarray, tolerance: float = EQUAL_TOLERANCE) -> np.ndarray:
    """Give all members of a group of equal eigenvalues their common mean, clipped to [0, 2].

    After this, equality to the bit is the one definition of a repeated eigenvalue.
    """
    if eigenvalues.size == 0:
        return eigenvalues
    starts = group_starts(eigenvalues, tolerance)
    sizes = np.diff(np.append(starts, eigenvalues.size))
    means = np.add.reduceat(eigenvalues, starts) / sizes
    return np.repeat(np.clip(whole_numbers(means, tolerance), 0.0, 2.0), sizes)


def whole_numbers(eigenvalues: np.ndarray, tolerance: float) -> np.ndarray:
    """Eigenvalues that are 0, 1 or 2 in exact arithmetic should say so, not 3e-17.

    Example:
        >>> whole_numbers(np.array([3e-17, 0.5, 2.0]), EQUAL_TOLERANCE)
        array([0. , 0.5, 2. ])
    """
    for exact in (0.0, 1.0, 2.0):
        eigenvalues = np.where(np.abs(eigenvalues - exact) <= tolerance, exact, eigenvalues)
    return eigenvalues
