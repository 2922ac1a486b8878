"""Summaries against SciPy's own interval."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specformer.training.evaluation.summaries import (
    ci95,
    holm,
    interval95,
    paired_difference,
    paired_differences,
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


OURS = [0.81, 0.79, 0.84, 0.80, 0.83, 0.78, 0.82, 0.85, 0.80, 0.81]
THEIRS = [0.80, 0.77, 0.84, 0.78, 0.80, 0.78, 0.83, 0.82, 0.79, 0.79]


def test_without_overlap_it_is_scipys_paired_t_test() -> None:
    found, oracle = paired_difference(OURS, THEIRS), stats.ttest_rel(OURS, THEIRS)
    low, high = oracle.confidence_interval(0.95)
    assert found["p"] == pytest.approx(oracle.pvalue, rel=1e-12)
    assert found["mean"] == pytest.approx((low + high) / 2)
    assert found["ci95"] == pytest.approx((high - low) / 2)


def test_overlap_widens_as_nadeau_and_bengio_say() -> None:
    """t shrinks by sqrt((1/k) / (1/k + ρ)); with k = 10 and ρ = 1/3 by sqrt(3/13)."""
    plain, found = paired_difference(OURS, THEIRS), paired_difference(OURS, THEIRS, overlap=1 / 3)
    t = stats.ttest_rel(OURS, THEIRS).statistic * math.sqrt(3 / 13)
    assert found["p"] == pytest.approx(2 * stats.t.sf(t, 9), rel=1e-12)
    assert found["ci95"] == pytest.approx(plain["ci95"] * math.sqrt(13 / 3))
    assert found["mean"] == plain["mean"]


def test_the_correction_keeps_false_alarms_rare_where_splits_overlap() -> None:
    """Differences of equally good models that correlate by ρ / (1 + ρ), as overlapping splits'."""
    generator, overlap, runs = np.random.default_rng(0), 1 / 3, 10
    shared = math.sqrt(overlap) * generator.normal(size=(2000, 1))
    draws = shared + generator.normal(size=(2000, runs))

    def alarms(rho: float) -> float:
        found = [paired_difference(draw, [0.0] * runs, rho)["p"] for draw in draws]
        return float(np.mean([p is not None and p < 0.05 for p in found]))

    assert alarms(0.0) > 0.2
    assert 0.03 < alarms(overlap) < 0.07


@pytest.mark.parametrize(
    ("ours", "theirs", "mean", "ci95", "p"),
    [
        ([0.9], [0.8], 0.1, None, None),
        ([0.9, 0.8], [0.9, 0.8], 0.0, 0.0, 1.0),
        ([0.9, 0.8, 0.7], [0.8, 0.7, 0.6], 0.1, 0.0, None),  # no spread, no test
        (np.float32([0.9, 0.8]), np.float32([0.8, 0.7]), 0.1, 0.0, None),
    ],
)
def test_where_nothing_can_be_said(ours, theirs, mean, ci95, p) -> None:
    found = paired_difference(ours, theirs)
    assert found["mean"] == pytest.approx(mean, abs=1e-7)
    assert (found["ci95"], found["p"]) == (ci95, p)


def test_pairs_need_as_many_of_both() -> None:
    with pytest.raises(ValueError, match="2 and 1 figures"):
        paired_difference([1.0, 2.0], [1.0])


def test_holm_is_rs() -> None:
    """``p.adjust(c(...), "holm")`` of R."""
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.5, 0.001, 0.6]) == pytest.approx([1.0, 0.003, 1.0])
    assert holm([0.03, None, 0.01]) == [pytest.approx(0.03), None, pytest.approx(0.02)]
    assert holm([]) == []


def test_pairs_keep_the_order_of_the_models() -> None:
    figures = {"c": [0.7, 0.7, 0.71], "a": [0.5, 0.6, 0.55], "b": [0.9, 0.8, 0.85]}
    pairs = [(each["model"], each["against"]) for each in paired_differences(figures)]
    assert pairs == [("c", "a"), ("c", "b"), ("a", "b")]


def test_all_pairs_are_adjusted_together() -> None:
    generator = np.random.default_rng(1)
    base = generator.normal(0.8, 0.02, size=8)
    figures = {
        name: (base + shift + generator.normal(0, 0.004, size=8)).tolist()
        for name, shift in (("a", 0.05), ("b", 0.0), ("c", -0.001))
    }
    found = paired_differences(figures)
    plain = [stats.ttest_rel(figures[e["model"]], figures[e["against"]]).pvalue for e in found]
    assert [e["p"] for e in found] == pytest.approx(plain)
    ordered = np.sort(plain)
    expected = np.minimum(1.0, np.maximum.accumulate(ordered * [3, 2, 1]))
    assert sorted(e["p_holm"] for e in found) == pytest.approx(expected)
    assert {(e["model"], e["against"]) for e in found if e["holds"]} == {("a", "b"), ("a", "c")}
