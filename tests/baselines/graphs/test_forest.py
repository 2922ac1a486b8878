"""A forest on counts of fragments: scikit-learn's own predictions, kept as arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from specformer.baselines.graphs import FragmentForest
from specformer.datasets import pack
from specformer.errors import ConfigError, RunError
from specformer.graphs import GraphSet

DRAW = np.random.default_rng(0)
COUNTS = DRAW.poisson(0.7, (80, 24)).astype(np.uint8)
NEW = DRAW.poisson(0.9, (50, 24)).astype(np.uint8)
NUMBERS = np.column_stack([COUNTS[:, 0] * 1.5 - COUNTS[:, 1], COUNTS[:, 2] ** 2 + DRAW.random(80)])
FEW = {"columns": [2, 1], "num_trees": 15, "seed": 3}
THEIRS = {"n_estimators": 15, "random_state": 3}


def outputs(forest: FragmentForest, counts: np.ndarray = NEW) -> torch.Tensor:
    return forest.outputs(torch.from_numpy(counts))


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_are_scikit_learns_one_forest_per_target(threads: int) -> None:
    targets = NUMBERS.copy()
    targets[::3, 1] = np.nan
    forest = FragmentForest.grown(COUNTS, targets, "numbers", 2, threads=threads, **FEW)
    for column in (0, 1):
        known = ~np.isnan(targets[:, column])
        theirs = RandomForestRegressor(max_features=1 / 3, **THEIRS)
        theirs.fit(COUNTS[known], targets[known, column])
        np.testing.assert_allclose(outputs(forest)[:, column], theirs.predict(NEW), rtol=1e-12)


def test_shares_of_ones_are_scikit_learns() -> None:
    ones = (NUMBERS[:, :1] > 0.5).astype(float)
    forest = FragmentForest.grown(COUNTS, ones, "ones", 1, min_samples_leaf=4, **FEW)
    theirs = RandomForestClassifier(min_samples_leaf=4, **THEIRS).fit(COUNTS, ones[:, 0])
    found = outputs(forest).sigmoid()[:, 0]
    np.testing.assert_allclose(found, theirs.predict_proba(NEW)[:, 1], rtol=1e-9, atol=1e-11)


def test_shares_of_classes_are_scikit_learns_and_absent_classes_have_none() -> None:
    classes = np.digitize(NUMBERS[:, 0], [0.0, 1.2]) * 2.0  # 0, 2 and 4 of five
    forest = FragmentForest.grown(COUNTS, classes[:, None], "classes", 5, max_features=0.2, **FEW)
    theirs = RandomForestClassifier(max_features=0.2, **THEIRS).fit(COUNTS, classes)
    found = outputs(forest).softmax(dim=1)
    np.testing.assert_allclose(found[:, ::2], theirs.predict_proba(NEW), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found[:, 1::2], 0.0, atol=1e-11)


def test_one_class_or_none_known() -> None:
    ones = np.column_stack([np.ones(80), np.full(80, np.nan)])
    found = outputs(FragmentForest.grown(COUNTS, ones, "ones", 2, **FEW)).sigmoid()
    np.testing.assert_allclose(found[:, 0], 1.0, atol=1e-11)
    assert found.isfinite().all()


def test_saved_and_loaded_it_says_the_same(tmp_path: Path) -> None:
    forest = FragmentForest.grown(COUNTS, NUMBERS, "numbers", 2, **FEW)
    forest.save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors", ".md"}
    again = FragmentForest.from_pretrained(tmp_path)
    assert torch.equal(outputs(again), outputs(forest))
    weights = tmp_path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-20] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(RunError, match="checksum differs"):
        FragmentForest.from_pretrained(tmp_path)


def test_batches_need_fingerprints() -> None:
    forest = FragmentForest.grown(COUNTS, NUMBERS, "numbers", 2, **FEW)
    with pytest.raises(ConfigError, match="pack them with fingerprint=24"):
        forest(pack(GraphSet([2], [1], [[0], [1]])))
