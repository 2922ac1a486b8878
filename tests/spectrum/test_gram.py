"""Products of tall blocks: by slabs, in float64, and of batches."""

from __future__ import annotations

import pytest
import torch

from specformer.spectrum import gram as grams
from specformer.spectrum.gram import gram


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def thin_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grams, "SLAB", 1)  # 1024 rows at a time


def test_slabs_leave_nothing_out() -> None:
    one, other = draw(2500, 4), draw(2500, 3, seed=1)
    torch.testing.assert_close(gram(one, other), one.T @ other)
    torch.testing.assert_close(gram(one), one.T @ one)


def test_sums_of_float32_are_float64() -> None:
    block = draw(3000, 5, dtype=torch.float32)
    torch.testing.assert_close(gram(block), block.double().T @ block.double(), rtol=1e-14, atol=0)


def test_a_batch_is_a_product_for_each() -> None:
    one, other = draw(2, 3, 9, 4), draw(2, 3, 9, 5, seed=1)
    for first in range(2):
        for second in range(3):
            alone = gram(one[first, second], other[first, second])
            torch.testing.assert_close(gram(one, other)[first, second], alone)
