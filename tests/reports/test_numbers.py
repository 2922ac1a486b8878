"""Numbers as people read them."""

from __future__ import annotations

import pytest

from specformer.reports import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (9.999, "10.0"),
        (0.0009999, "0.00100"),
        (0.000999, "9.99×10⁻⁴"),
        (0.001, "0.00100"),
        (25.449, "25.4"),
        (99_949.0, "99,900"),
        (9_994_000.0, "9,990,000"),
        (9_996_000.0, "1.00×10⁷"),
        (2.38e31, "2.38×10³¹"),
        (-0.5, "−0.500"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_error_has_three_digits(value, text):
    assert numbers.error(value) == text


def test_interval_follows_its_mean():
    assert numbers.error(2.41e-4, like=4.04e-5) == "24.10×10⁻⁵"
    assert numbers.error(27.6, like=119.0) == "28"
    assert numbers.r_squared(6.1e-6, like=0.9999913) == "0.0000061"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.99995, "0.999950"), (0.99987, "0.99987"), (1.0, "1.0000"), (0.5, "0.5000"), (None, "–")],
)
def test_r_squared_never_rounds_to_perfect(value, text):
    assert numbers.r_squared(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.96, "1 min 00 s"), (3599.6, "1 h 00 min"), (None, "–"), (0.5, "0.5 s")],
)
def test_duration_rounds_into_the_next_unit(seconds, text):
    assert numbers.duration(seconds) == text


def test_factor_is_bounded():
    assert numbers.factor(1e7) == "over a million"
    assert numbers.factor(9.97) == "10"


def test_an_interval_is_never_wider_than_all_there_can_be():
    assert numbers.spread(numbers.percent, 0.336, 0.05) == "± 5.0"
    assert numbers.spread(numbers.percent, 1.0, 0.0) == "± 0.0"
    low, high = map(float, numbers.spread(numbers.percent, 0.336, 2.41).strip("()").split(" to "))
    assert 0 <= low < 33.6 < high <= 100
    assert numbers.percent(1.0, like=0.5) == "100.0"
    assert numbers.percent(1.0) == "100.0%"


def test_date_that_is_none_stays_as_it_is():
    assert numbers.date("yesterday") == "yesterday"
    assert numbers.date(None) == "–"
    assert numbers.date("2025-03-04T14:05:06+00:00") == "4 March 2025, 14:05 UTC"
