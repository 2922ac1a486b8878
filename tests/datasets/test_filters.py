"""The five filters: values worked out with NumPy, and the complements among them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specformer.datasets import FILTERS, target_filter
from specformer.errors import ConfigError

POINTS = np.linspace(0, 2, 81)
EXPECTED = {
    "low-pass": np.exp(-10 * POINTS**2),
    "high-pass": 1 - np.exp(-10 * POINTS**2),
    "band-pass": np.exp(-10 * (POINTS - 1) ** 2),
    "band-rejection": 1 - np.exp(-10 * (POINTS - 1) ** 2),
    "comb": np.abs(np.sin(np.pi * POINTS)),
}


def test_the_names_are_the_contracts():
    assert list(FILTERS) == ["low-pass", "high-pass", "band-pass", "band-rejection", "comb"]
    assert all(name == target.name for name, target in FILTERS.items())


@pytest.mark.parametrize("name", EXPECTED)
def test_values(name):
    values = target_filter(name)(torch.as_tensor(POINTS))
    np.testing.assert_allclose(values.numpy(), EXPECTED[name], atol=1e-15)


@pytest.mark.parametrize(
    ("name", "at_ends_and_middle"),
    [
        ("low-pass", (1, 0, 0)),
        ("high-pass", (0, 1, 1)),
        ("band-pass", (0, 1, 0)),
        ("band-rejection", (1, 0, 1)),
        ("comb", (0, 0, 0)),
    ],
)
def test_what_each_lets_through(name, at_ends_and_middle):
    values = target_filter(name)(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    np.testing.assert_allclose(values.numpy(), at_ends_and_middle, atol=1e-4)


def test_every_filter_says_its_formula_once():
    formulas = [target.formula for target in FILTERS.values()]
    assert len(set(formulas)) == 5
    assert all("λ" in formula for formula in formulas)


def test_unknown_filter_names_the_known():
    with pytest.raises(ConfigError, match=r"'lowpass'.*low-pass.*comb"):
        target_filter("lowpass")
