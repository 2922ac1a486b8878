"""The checks after every solve measure what they say."""

from __future__ import annotations

import math

import pytest
import torch
from tests.spectrum.known_graphs import SMALL

from specformer.graphs import normalised_laplacian
from specformer.spectrum import checks
from specformer.spectrum.checks import max_orthogonality_error, max_residual

EDGE = normalised_laplacian(SMALL["one edge"])  # [[1, -1], [-1, 1]]


def test_residual_by_hand() -> None:
    unit = torch.eye(2, dtype=torch.float64)
    assert max_residual(EDGE, torch.tensor([1.0, 1.0]), unit) == 1.0
    assert max_residual(EDGE, torch.tensor([1.0, 0.0]), unit) == pytest.approx(math.sqrt(2))


def test_orthogonality_by_hand() -> None:
    assert max_orthogonality_error(torch.eye(3)) == 0.0
    assert max_orthogonality_error(torch.tensor([[1.0, 0.5], [0.0, 1.0]])) == 0.5
    assert max_orthogonality_error(torch.tensor([[2.0]])) == 3.0
    assert max_orthogonality_error(torch.empty(3, 0)) == 0.0


def test_blocks_leave_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_BLOCK", 2)
    vectors = torch.eye(5, dtype=torch.float64)
    vectors[0, 4] = 0.25
    assert max_orthogonality_error(vectors) == 0.25
    laplacian = normalised_laplacian(SMALL["loops"])
    values = torch.tensor(laplacian.diagonal())
    values[4] += 7.0
    assert max_residual(laplacian, values, torch.eye(5, dtype=torch.float64)) == 7.0


def test_not_a_number_is_never_small() -> None:
    broken = torch.full((2, 1), math.nan)
    assert math.isnan(max_residual(EDGE, torch.zeros(1), broken))
    assert math.isnan(max_orthogonality_error(broken))
