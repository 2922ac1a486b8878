"""Pieces of flat arrays, against loops over them one by one."""

import numpy as np
import pytest

from specformer.graphs.flat_arrays import ragged, runs_within, starts


def test_pieces_lie_one_after_the_other():
    counts = np.array([2, 0, 3, 1])
    begin = starts(counts)
    assert begin.tolist() == [sum(counts[:piece]) for piece in range(5)]
    first = np.array([7, 0, 4, 9])
    one_by_one = [
        number for at, count in zip(first, counts, strict=True) for number in range(at, at + count)
    ]
    assert ragged(first, counts).tolist() == one_by_one


@pytest.mark.parametrize("longest", [None, 1, 3])
@pytest.mark.parametrize("limit", [1, 10, 40])
def test_runs_are_as_long_as_they_may_be(limit, longest):
    weights = np.random.default_rng(0).integers(1, 20, size=50)
    expected, first = [], 0
    for entry in range(1, len(weights) + 1):
        full = entry == len(weights) or weights[first : entry + 1].sum() > limit
        if full or entry - first == longest:
            expected.append((first, entry))
            first = entry
    assert list(runs_within(weights, limit, longest)) == expected


def test_an_empty_row_has_no_run():
    assert list(runs_within(np.array([], dtype=int), 5)) == []
