"""Signs and checks after every solve, of one graph and of a batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.spectrum.known_graphs import SMALL

from specformer.errors import SpectrumError
from specformer.graphs import normalised_laplacian
from specformer.spectrum import eigenpairs
from specformer.spectrum import eigenpairs as grams
from specformer.spectrum.eigenpairs import (
    canonical_signs,
    check_eigenpairs,
    gram,
    max_orthogonality_error,
    max_residual,
)

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
    monkeypatch.setattr(eigenpairs, "_BLOCK", 2)
    vectors = torch.eye(5, dtype=torch.float64)
    vectors[0, 4] = 0.25
    assert max_orthogonality_error(vectors) == 0.25
    laplacian = normalised_laplacian(SMALL["loops"])
    values = torch.tensor(laplacian.diagonal())
    values[4] += 7.0
    assert max_residual(laplacian, values, torch.eye(5, dtype=torch.float64)) == 7.0


def test_float32_vectors_are_summed_in_float64() -> None:
    degrees = np.random.default_rng(0).pareto(1.5, 500_000) + 1.0
    unit = np.sqrt(degrees / degrees.sum())[:, None].astype(np.float32)
    exact = abs(float((unit.astype(np.float64) ** 2).sum()) - 1.0)
    assert exact < 1e-7
    one_by_one = np.cumsum(unit**2, dtype=np.float32)[-1]  # as a thread of a GPU adds
    assert abs(one_by_one - 1.0) > 1e-5
    assert max_orthogonality_error(torch.as_tensor(unit)) == pytest.approx(exact, abs=1e-12)


def test_a_residual_is_not_that_of_its_own_rounding() -> None:
    spokes = np.stack([np.zeros(200_000, dtype=np.int64), np.arange(1, 200_001)])
    half = sp.coo_array((np.ones(200_000), spokes), (200_001, 200_001))
    star = sp.csr_array(half + half.T)
    laplacian = normalised_laplacian(star)
    unit = torch.as_tensor(np.sqrt(star.sum(axis=1) / star.sum())).unsqueeze(1)
    exact = laplacian @ unit.float().double().numpy()  # what storing it in float32 costs
    found = max_residual(laplacian, torch.zeros(1), unit.float())
    assert found == pytest.approx(float(np.linalg.norm(exact)), rel=1e-6)
    assert found < 1e-7


def test_not_a_number_is_never_small() -> None:
    broken = torch.full((2, 1), math.nan)
    assert math.isnan(max_residual(EDGE, torch.zeros(1), broken))
    assert math.isnan(max_orthogonality_error(broken))


def test_a_batch_is_measured_by_its_worst() -> None:
    operator = torch.diag(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)).expand(2, 3, 3)
    values = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.5]]).double()
    vectors = torch.eye(3).double().repeat(2, 1, 1)
    assert max_residual(operator, values, vectors) == 0.5
    assert max_orthogonality_error(vectors) == 0.0
    vectors[0] *= 2.0
    assert max_residual(operator[:1], values[1:], vectors[:1]) == 1.0
    assert max_orthogonality_error(vectors) == 3.0
    vectors[1, 0, 0] = math.nan
    assert math.isnan(max_residual(operator, values, vectors))
    assert math.isnan(max_orthogonality_error(vectors))


def test_what_fails_its_checks_is_refused() -> None:
    check_eigenpairs("solver 'x'", 1e-5, 1e-5)
    for bad in ((1e-3, 0.0), (0.0, 1e-3), (math.nan, 0.0), (0.0, math.nan)):
        with pytest.raises(SpectrumError, match="solver 'x' failed its checks: residual"):
            check_eigenpairs("solver 'x'", *bad)


@pytest.mark.parametrize("batch", [(), (1,), (2, 3)])
def test_signs_do_not_depend_on_the_last_digits(batch: tuple[int, ...]) -> None:
    column = torch.tensor([[0.5, -0.5, 0.5, -0.5]]).T
    for noise in (1e-7, -1e-7):
        for sign in (1, -1):
            shaken = sign * column + noise * torch.tensor([[1.0, 1, -1, -1]]).T
            signed = canonical_signs(shaken.repeat(*batch, 1, 1))
            assert (signed[..., 0, 0] > 0).all()
            torch.testing.assert_close(signed.abs(), shaken.abs().expand_as(signed))


def test_signs_follow_the_largest_entry() -> None:
    vectors = torch.tensor([[0.1, 0.0], [-0.9, 0.0], [0.3, 1.0]])
    expected = torch.tensor([[-0.1, 0.0], [0.9, 0.0], [-0.3, 1.0]])
    assert torch.equal(canonical_signs(vectors), expected)
    assert canonical_signs(torch.empty(3, 0)).shape == (3, 0)


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
