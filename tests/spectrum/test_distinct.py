"""Equal eigenvalues: found in any order, snapped together by solvers."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from specformer.spectrum.eigenpairs import EQUAL_TOLERANCE, distinct, group_starts, snap


def test_distinct_in_any_order() -> None:
    groups = distinct(torch.tensor([1.0, 0.0, 1.0, 2.0, 1.0]))
    assert groups.values.tolist() == [0.0, 1.0, 2.0]
    assert groups.counts.tolist() == [1.0, 3.0, 1.0]
    assert groups.index.tolist() == [1, 0, 1, 2, 1]
    assert groups.tokens.weights is groups.counts


def test_distinct_keeps_the_dtype() -> None:
    groups = distinct(torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert groups.counts.dtype == groups.values.dtype == torch.float64


def test_groups_end_at_the_tolerance() -> None:
    apart, together = 1.01 * EQUAL_TOLERANCE, 0.99 * EQUAL_TOLERANCE
    assert group_starts(np.array([0.5, 0.5 + together, 1.0, 1.0 + apart])).tolist() == [0, 2, 3]
    assert group_starts(np.array([])).tolist() == []


def test_snap_takes_the_mean_and_rounds_to_what_is_exact() -> None:
    noisy = np.array([-3e-17, 2e-16, 0.5, 0.5 + 2e-12, 1 - 1e-15, 2 + 4e-16])
    assert snap(noisy).tolist() == [0.0, 0.0, 0.5 + 1e-12, 0.5 + 1e-12, 1.0, 2.0]
    assert snap(np.array([])).size == 0


def test_no_group_of_a_batch_goes_on_in_the_next_row() -> None:
    rows = np.array(
        [
            [-1e-17, 1e-12, 0.4, 0.4 + 1e-9, 1.0 - 1e-10, 1.3, 2.0 + 1e-15],
            [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
            [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0 + 1e-13],
        ]
    )
    snapped = snap(rows, 1e-8)
    for row, alone in zip(snapped, rows, strict=True):
        np.testing.assert_array_equal(row, snap(alone, 1e-8))
    assert snapped[0].tolist() == [0.0, 0.0, snapped[0, 3], snapped[0, 3], 1.0, 1.3, 2.0]
    below = snap(np.array([[-1.0 - 1e-12, 1e-12, 1.0 + 1e-12]]), 1e-8, lowest=-1.0)
    assert below.tolist() == [[-1.0, 0.0, 1.0]]


@given(st.lists(st.floats(0, 2), min_size=1, max_size=20), st.integers(0, 2**32))
def test_snapped_values_are_equal_to_the_bit_within_a_group(values: list, seed: int) -> None:
    exact = np.sort(np.round(values, 3))
    noise = np.random.default_rng(seed).uniform(-1e-12, 1e-12, len(exact))
    snapped = snap(np.sort(exact + noise))
    np.testing.assert_allclose(snapped, exact, atol=2e-12)
    assert len(np.unique(snapped)) == len(np.unique(exact))
    assert snapped.min() >= 0
    assert snapped.max() <= 2
