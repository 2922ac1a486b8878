"""Blocks of vectors: widths, memory that is not there, random columns in part of a basis."""

from __future__ import annotations

import pytest
import scipy.sparse as sp
import torch

from specformer.errors import SpectrumError
from specformer.spectrum import memory
from specformer.spectrum.solvers.chebyshev import blocks
from specformer.spectrum.solvers.chebyshev.blocks import block_width, empty_block, fill_randomly
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
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**30)
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
