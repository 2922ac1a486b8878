"""Blocks of vectors: widths, memory that is not there, random columns in part of a basis."""

from __future__ import annotations

import pytest
import scipy.sparse as sp
import torch

from specformer.errors import SpectrumError
from specformer.spectrum import devices
from specformer.spectrum import eigenpairs as grams
from specformer.spectrum.solvers.chebyshev import blocks
from specformer.spectrum.solvers.chebyshev.blocks import (
    ORTHONORMAL,
    block_width,
    empty_block,
    fill_randomly,
    orthonormalise,
    project_out,
    rotate,
)
from specformer.spectrum.solvers.chebyshev.filtering import Operator


def operator(size: int, dtype: torch.dtype) -> Operator:
    return Operator(sp.csr_array((size, size)), torch.device("cpu"), dtype)


def test_a_block_is_wider_than_what_is_asked_for() -> None:
    beyond = [block_width(count) - count for count in range(1, 4000)]
    assert min(beyond) == 16
    assert beyond == sorted(beyond)
    assert all(extra <= 0.26 * count for count, extra in enumerate(beyond, 1) if count >= 64)


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty_block(operator(10, torch.float32), 3).shape == (10, 3)
    monkeypatch.setattr(devices, "available_bytes", lambda device: 2**30)
    with pytest.raises(SpectrumError, match=r"that 3,000 vectors, 2\.2 GiB, are needed on cpu; 1"):
        empty_block(operator(100_000, torch.float64), 3_000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_random_columns_fill_a_part(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "WIDE", 4)
    basis = torch.zeros(5000, 12, dtype=dtype)
    fill_randomly(basis[:, 2:], torch.Generator().manual_seed(0))
    assert not basis[:, :2].any()
    products = basis[:, 2:].T @ basis[:, 2:]
    torch.testing.assert_close(products, torch.eye(10, dtype=dtype), rtol=0, atol=0.08)


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
