"""Summaries against SciPy's own interval."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specformer.training.evaluation.summaries import (
    ci95,
    interval95,
    spread_bins,
    summary,
    wilson95,
)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_interval_is_students(values):
    error = stats.sem(values)
    found = summary(values)
    assert found["mean"] == pytest.approx(np.mean(values))
    if error > 0:
        low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
        assert found["ci95"] == pytest.approx((high - low) / 2, rel=1e-6, abs=1e-9)
    else:
        assert found["ci95"] == pytest.approx(0.0, abs=1e-9)
    assert found["values"] == values


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=30))
def test_an_interval_of_fractions_stays_within_them(values):
    found = summary(values)
    mean, half = found["mean"], found["ci95"]
    low, high = interval95(mean, half)
    assert 0.0 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1.0
    if mean - half >= 0 and mean + half <= 1:
        assert (low, high) == (mean - half, mean + half)


def test_an_interval_that_would_leave_100_is_that_of_the_log_odds():
    # By hand: log(0.98 / 0.02) = 3.8918, and 0.04 / (0.98 · 0.02) = 2.0408 to either side.
    ends = [1 / (1 + np.exp(-each)) for each in (3.8918 - 2.0408, 3.8918 + 2.0408)]
    assert interval95(0.98, 0.04) == pytest.approx(ends, abs=1e-5)


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (5, 10), (19, 20), (300, 1000)])
def test_wilsons_interval_is_scipys(right, count):
    found = stats.binomtest(right, count).proportion_ci(method="wilson")
    assert wilson95(right / count, count) == pytest.approx((found.low, found.high), abs=1e-12)


def test_one_value_has_no_interval():
    assert ci95([1.0]) is None
    assert summary([0.25]) == {"mean": 0.25, "ci95": None, "values": [0.25]}


def test_numbers_of_any_library_become_json():
    found = summary([np.float32(0.5), np.float64(1.5)])
    assert json.loads(json.dumps(found)) == found


def test_spreads_and_errors_bin_by_bin():
    """Where models differ by what their mean is wrong by, bins lie on the diagonal."""
    draw = np.random.default_rng(0)
    scale, count = np.linspace(0.1, 3.0, 6000), 400
    truth, predicted = np.zeros(6000), draw.normal(size=(count, 6000)) * scale
    bins = spread_bins(predicted + draw.normal(size=6000) * scale, np.append(truth[1:], np.nan))
    assert bins[:, 2].tolist() == [1000] * 5 + [999]
    assert (np.diff(bins[:, 0]) > 0).all()
    np.testing.assert_allclose(bins[:, 1], bins[:, 0], rtol=0.1)
    few = spread_bins(predicted[:2, :12], truth[:12])
    assert few.shape == (1, 3)
    spread = predicted[:2, :12].std(axis=0, ddof=1)
    assert few[0, 0] == pytest.approx(np.sqrt(np.mean(spread**2)))
    assert spread_bins(predicted[:2, :1], np.array([np.nan])).shape == (0, 3)
