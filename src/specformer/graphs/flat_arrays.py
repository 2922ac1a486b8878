"""Flat arrays that hold pieces of different lengths, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def starts(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the start of each piece, given their lengths, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def ragged(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return first[0], first[0]+1, …, then first[1], first[1]+1, …: ``counts[i]`` numbers each."""
    begin = starts(counts)
    return np.repeat(first - begin[:-1], counts) + np.arange(begin[-1])


def runs_within(
    weights: NDArray[Any], limit: int, longest: int | None = None
) -> Iterator[tuple[int, int]]:
    """Cut a row into runs whose weights sum to at most ``limit``; a heavier entry is its own run.

    ``longest`` is the largest number of entries in a run.
    """
    end = np.cumsum(weights)
    first = 0
    while first < len(weights):
        before = end[first - 1] if first else 0
        last = max(int(np.searchsorted(end, before + limit, side="right")), first + 1)
        last = last if longest is None else min(last, first + longest)
        yield first, last
        first = last
