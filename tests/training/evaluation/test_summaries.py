"""Summaries against SciPy's own interval."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specformer.training.evaluation.summaries import ci95, summary


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


def test_one_value_has_no_interval():
    assert ci95([1.0]) is None
    assert summary([0.25]) == {"mean": 0.25, "ci95": None, "values": [0.25]}


def test_numbers_of_any_library_become_json():
    found = summary([np.float32(0.5), np.float64(1.5)])
    assert json.loads(json.dumps(found)) == found
