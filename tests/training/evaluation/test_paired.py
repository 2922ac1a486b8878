"""Paired differences against SciPy's test, R's adjustment and numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from specformer.training.evaluation.paired import holm, paired_difference, paired_differences

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


@pytest.mark.parametrize("lower", [False, True])
def test_the_better_one_comes_first(lower: bool) -> None:
    figures = {"a": [0.5, 0.6, 0.55], "b": [0.9, 0.8, 0.85], "c": [0.7, 0.7, 0.71]}
    pairs = [(each["model"], each["against"]) for each in paired_differences(figures, lower=lower)]
    assert pairs == (
        [("a", "c"), ("a", "b"), ("c", "b")] if lower else [("b", "c"), ("b", "a"), ("c", "a")]
    )


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
