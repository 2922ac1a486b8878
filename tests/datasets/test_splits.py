"""Splits: counts as the reading notes give them, nothing in two parts, a hash that notices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specformer.datasets import Split, random_60_20_20


def parts(split: Split) -> list[np.ndarray]:
    return [split.train, split.val, split.test]


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    unlabelled=st.integers(0, 10),
    seed=st.integers(0, 100),
)
def test_counts_as_the_paper_has_them(counts, unlabelled, seed):
    y = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.full(unlabelled, -1)])
    y = np.random.default_rng(seed).permutation(y)
    split = random_60_20_20(y, seed)
    n, classes = sum(counts), len(counts)
    per_class = round(0.6 * n / classes)
    for label, count in enumerate(counts):
        assert split.train[y == label].sum() == min(per_class, count)
    rest = n - split.train.sum()
    assert split.val.sum() == min(round(0.2 * n), rest)
    # Every labelled node is in exactly one part, no other node is in any.
    np.testing.assert_array_equal(np.sum(parts(split), axis=0), (y >= 0).astype(int))


def test_seeds_choose_the_split():
    y = np.arange(200) % 5
    fingerprints = {random_60_20_20(y, seed).fingerprint for seed in range(10)}
    assert len(fingerprints) == 10
    assert random_60_20_20(y, 3).fingerprint == random_60_20_20(y, 3).fingerprint


def test_cora_counts(shared_data):
    with np.load(shared_data / "cora.npz", allow_pickle=False) as file:
        y = file["y"]
    split = random_60_20_20(y, 0)
    # 2,708 nodes of 7 classes: 232 a class where it has that many, 542 of the rest.
    expected = np.minimum(np.bincount(y), 232)
    np.testing.assert_array_equal(np.bincount(y[split.train]), expected)
    assert split.val.sum() == 542


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("node", [0, 7, 19])
def test_fingerprint_changes_with_any_index(part, node):
    split = random_60_20_20(np.arange(20) % 2, 0)
    changed = [mask.copy() for mask in parts(split)]
    changed[part][node] ^= True
    assert Split(*changed).fingerprint != split.fingerprint


def test_fingerprint_tells_the_parts_apart():
    split = random_60_20_20(np.arange(20) % 2, 0)
    swapped = Split(split.train, split.test, split.val)
    assert swapped.fingerprint != split.fingerprint
    assert len(split.fingerprint) == 16
