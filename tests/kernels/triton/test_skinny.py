"""Products of U with few columns, against products in float64."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from tests.kernels.triton.graphs import random
from torch import Tensor

from specformer import Spectrum
from specformer.errors import SpectrumError
from specformer.kernels.triton import skinny
from specformer.spectrum.products import aligned

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
#: How far a factor in TF32 may be off.
TF32 = 2**-10


@pytest.fixture(autouse=True)
def _bfloat16_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter cuts float32 to bfloat16, and multiplies bfloat16 as if it were integers."""
    if not INTERPRETED:
        return
    from triton import language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast, dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def rounded(self, source, target):
        if (source.dtype.scalar, target.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, source, target)
        data = torch.tensor(source.data).bfloat16().view(torch.int16).numpy().view(np.uint16)
        return TensorHandle(data, tl.bfloat16)

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def multiplied(self, a, b, *others):
        return dot(self, widened(a), widened(b), *others)

    monkeypatch.setattr(InterpreterBuilder, "cast_impl", rounded)
    monkeypatch.setattr(InterpreterBuilder, "create_dot", multiplied)


def surrounded(values: Tensor, device: torch.device) -> Tensor:
    """The same rows in the middle of others, which would show if they were read."""
    rows, columns = values.shape
    around = torch.full((rows + 150, columns + 3), torch.nan, dtype=values.dtype, device=device)
    around[5 : rows + 5, :columns] = values
    return around[5 : rows + 5, :columns]


def factors(n: int, q: int, columns: int, forward: bool) -> tuple[Tensor, Tensor]:
    """U with entries of the size they have, and x, both in float32."""
    vectors = random(n, q, seed=0) / n**0.5
    return vectors.float(), random(n if forward else q, columns, seed=1).float()


def assert_product(
    found: Tensor, vectors: Tensor, x: Tensor, forward: bool, dtype: torch.dtype = torch.bfloat16
) -> None:
    """The product in float64 of the factors as they are once rounded."""
    wide, factor = vectors.to(dtype).double(), x.to(dtype).double()
    exact = (wide.T if forward else wide) @ factor
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    # Products of numbers in bfloat16 are exact in float32; the GPU rounds the others to TF32.
    atol = 5e-5 if dtype == torch.bfloat16 or INTERPRETED else 8 * TF32
    torch.testing.assert_close(found.cpu().double(), exact, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(
    ("n", "q", "columns"),
    [(1, 1, 1), (40, 40, 16), (67, 67, 5), (301, 131, 7), (257, 250, 17), (129, 100, 32)],
)
def test_product(n, q, columns, forward: bool, dtype: torch.dtype, device: torch.device) -> None:
    vectors, x = factors(n, q, columns, forward)
    found = skinny.skinny_product(
        aligned(vectors.to(device), dtype), surrounded(x, device), forward
    )
    assert_product(found, vectors, x, forward, dtype)


@pytest.mark.parametrize("forward", [True, False])
def test_more_parts_than_are_added_at_once(forward: bool, device: torch.device) -> None:
    n, q = (1700, 9) if forward else (9, 1700)
    vectors, x = factors(n, q, 3, forward)
    plan = skinny._plan(torch.bfloat16, 3)
    assert skinny._shares(1700 // plan.terms, 1, plan.programs)[0] > skinny._PARTS
    found = skinny.skinny_product(aligned(vectors.to(device)), x.to(device), forward)
    assert_product(found, vectors, x, forward)


@pytest.mark.parametrize("forward", [True, False])
def test_signals_of_any_strides(forward: bool, device: torch.device) -> None:
    vectors, x = factors(90, 70, 6, forward)
    tiles = aligned(vectors.to(device))
    turned = x.T.contiguous().to(device).T
    found = skinny.skinny_product(tiles, turned, forward)
    assert_product(found, vectors, x, forward)
    same = x[:, :1].to(device).expand(-1, 6)
    found = skinny.skinny_product(tiles, same, forward)
    assert_product(found, vectors, same.cpu(), forward)


@pytest.mark.parametrize("forward", [True, False])
def test_rows_after_the_last_are_not_read(forward: bool, device: torch.device) -> None:
    vectors, x = factors(70, 64, 4, forward)
    around = torch.full((200, 64), torch.nan, dtype=torch.bfloat16, device=device)
    around[:70] = vectors
    found = skinny.skinny_product(around[:70], x.to(device), forward)
    assert_product(found, vectors, x, forward)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every product by the kernels, whether it was with Uᵀ; small U are multiplied by them."""
    made: list[bool] = []
    product = skinny.skinny_product

    def counted(vectors: Tensor, x: Tensor, forward: bool) -> Tensor:
        made.append(forward)
        return product(vectors, x, forward)

    monkeypatch.setattr(skinny, "skinny_product", counted)
    monkeypatch.setattr("specformer.spectrum.products._ENOUGH", 0)
    return made


def spectrum_of(n: int, q: int, device: torch.device) -> Spectrum:
    vectors = torch.linalg.qr(random(n, q, seed=2))[0].float()
    return Spectrum(torch.linspace(0, 2, q), vectors).to(device)


@pytest.mark.parametrize(("n", "q"), [(50, 50), (61, 40)])
def test_filter_and_its_gradient(n: int, q: int, device: torch.device, calls: list[bool]) -> None:
    spectrum = spectrum_of(n, q, device)
    x = random(2, n, 3, seed=3).float().to(device).requires_grad_()
    gains = spectrum.eigenvalues.clone().unsqueeze(-1).requires_grad_()
    torch.set_float32_matmul_precision("high")
    spectrum.filter_bank(x, gains).square().sum().backward()
    assert calls == [True, False, True, False]

    U, signal = spectrum.eigenvectors.cpu().double(), x.detach().cpu().double().requires_grad_()
    response = gains.detach().cpu().double().requires_grad_()
    (U @ (response * (U.T @ signal))).square().sum().backward()
    for ours, theirs in ((x.grad, signal.grad), (gains.grad, response.grad)):
        error = (ours.cpu().double() - theirs).norm() / theirs.norm()
        assert error < 8 * TF32


def test_other_products_are_left_to_pytorch(device: torch.device, calls: list[bool]) -> None:
    spectrum = spectrum_of(20, 20, device)
    few, many = torch.ones(20, 32, device=device), torch.ones(20, 33, device=device)
    spectrum.gft(few)  # at the highest precision
    torch.set_float32_matmul_precision("high")
    spectrum.gft(many)
    spectrum.gft(many[:, :0])
    spectrum.to(dtype=torch.float64).gft(few.double())
    with pytest.raises(SpectrumError, match="the spectrum has 20 eigenpairs"):
        spectrum.igft(few[:19])
    assert calls == []
    spectrum.igft(few)
    assert calls == [False]


def test_float32_is_copied_only_to_align_it(device: torch.device, calls: list[bool]) -> None:
    torch.set_float32_matmul_precision("high")
    by_rows = torch.eye(20, device=device)
    for vectors, copied in ((by_rows, False), (by_rows[:, :19], True), (by_rows.T, False)):
        spectrum = Spectrum(torch.zeros(vectors.shape[1], device=device), vectors)
        x = random(20, 1, seed=4).float().to(device)
        torch.testing.assert_close(spectrum.gft(x), x[: vectors.shape[1]], rtol=TF32, atol=0)
        assert (spectrum._product._lined is not None) == copied
    assert len(calls) == 3
