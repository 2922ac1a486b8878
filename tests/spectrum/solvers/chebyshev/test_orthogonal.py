"""Orthonormal columns: sums by slabs, dependent columns, a found space to stay clear of."""

from __future__ import annotations

import pytest
import torch

from specformer.spectrum import gram as grams
from specformer.spectrum.solvers.chebyshev.orthogonal import (
    ORTHONORMAL,
    orthonormalise,
    project_out,
    rotate,
)


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def thin_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grams, "SLAB", 1)  # 1024 rows at a time


def test_a_rotation_leaves_no_slab_out() -> None:
    block, matrix = draw(2500, 4), draw(4, 4, seed=2)
    expected = block @ matrix
    rotate(block, matrix)
    torch.testing.assert_close(block, expected)


def hard(kind: str, dtype: torch.dtype) -> torch.Tensor:
    block = draw(1500, 30, dtype=torch.float64)
    if kind == "graded":
        block *= torch.logspace(0, -25, 30, dtype=torch.float64)
    elif kind == "one direction":
        block = block[:, :1] + 1e-6 * block
    elif kind == "equal columns":
        block[:, 10:20] = block[:, :10]
    elif kind == "zero columns":
        block[:, 7] = 0.0
    elif kind == "mostly found":
        block = 1e6 * draw(1500, 1, seed=5) + block
    return block.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "kind", ["plain", "graded", "one direction", "equal columns", "zero columns", "mostly found"]
)
def test_columns_become_orthonormal(kind: str, dtype: torch.dtype) -> None:
    found = torch.linalg.qr(torch.cat([draw(1500, 1, seed=5), draw(1500, 6, seed=6)], dim=1))[0]
    found, block = found.to(dtype), hard(kind, dtype)
    limit = ORTHONORMAL[dtype]
    products = orthonormalise(block, found, torch.Generator().manual_seed(0))
    assert (block.double().T @ block.double() - torch.eye(30)).abs().max() <= limit
    assert (found.double().T @ block.double()).abs().max() <= limit
    torch.testing.assert_close(products, block.double().T @ block.double(), rtol=0, atol=limit)


def test_independent_columns_keep_their_span() -> None:
    block = draw(800, 12)
    before = torch.linalg.qr(block)[0]
    orthonormalise(block, block.new_empty(800, 0), torch.Generator())
    torch.testing.assert_close(block @ (block.T @ before), before, rtol=0, atol=1e-12)


def test_projection() -> None:
    found = torch.linalg.qr(draw(1200, 8))[0]
    block = draw(1200, 5, seed=3)
    expected = block - found @ (found.T @ block)
    project_out(block, found)
    torch.testing.assert_close(block, expected, rtol=0, atol=1e-13)
