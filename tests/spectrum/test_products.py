"""Products with U in bfloat16, where PyTorch's level of precision allows them."""

from __future__ import annotations

import pytest
import torch

from specformer import Spectrum
from specformer.errors import SpectrumError
from specformer.spectrum.products import RowStream, aligned, rows_at_once
from specformer.training.runs.environment import matmul_precision


@pytest.mark.parametrize("pairs", [5, 8])
def test_brief_vectors_are_aligned_copies(pairs):
    vectors = torch.linalg.qr(torch.randn(12, pairs, generator=torch.manual_seed(0)))[0]
    brief = aligned(vectors)
    assert brief.shape == vectors.shape
    assert brief.stride() == (8, 1)
    assert torch.equal(brief, vectors.bfloat16())


@pytest.mark.parametrize("pairs", [5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_kept_in_bfloat16_are_multiplied_in_the_work_s_precision(pairs, dtype):
    vectors = torch.linalg.qr(torch.randn(12, pairs, generator=torch.manual_seed(0)))[0].to(dtype)
    spectrum = Spectrum(torch.linspace(0, 2, pairs, dtype=dtype), vectors)
    kept = spectrum.to(storage=torch.bfloat16)
    assert (kept.dtype, kept.eigenvectors.dtype) == (dtype, torch.bfloat16)
    assert not kept.is_streamed
    assert "kept in torch.bfloat16" in repr(kept)
    assert kept.eigenvectors.stride() == kept.to("cpu").eigenvectors.stride() == (8, 1)
    rounded = vectors.bfloat16().to(dtype)
    x = torch.randn(12, 3, dtype=dtype, generator=torch.manual_seed(1))
    torch.testing.assert_close(kept.gft(x), rounded.T @ x)
    torch.testing.assert_close(kept.igft(rounded.T @ x), rounded @ (rounded.T @ x))
    again = kept.to(storage=dtype)
    assert torch.equal(again.eigenvectors, rounded)
    with pytest.raises(SpectrumError, match=r"storage=torch.int8: choose torch.bfloat16"):
        spectrum.to(storage=torch.int8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("columns", [2, 16, 40])
def test_vectors_kept_in_bfloat16_are_read_as_they_are(columns):
    torch.manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(4101, 4097))[0]
    whole = Spectrum(torch.linspace(0, 2, 4097), vectors)
    x = torch.randn(4101, columns, device="cuda")
    kept = whole.to("cuda", storage=torch.bfloat16)
    with matmul_precision("medium", torch.device("cuda")):
        assert torch.equal(kept.gft(x), whole.to("cuda").gft(x))
    assert kept._product._brief is kept.eigenvectors


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("columns", [1, 7, 16])
def test_large_products_in_bfloat16_keep_two_digits(columns):
    torch.manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(4101, 4097))[0]
    spectrum = Spectrum(torch.linspace(0, 2, 4097), vectors).to("cuda")
    x = torch.randn(4101, columns, device="cuda", requires_grad=True)
    with matmul_precision("medium", torch.device("cuda")):
        found = spectrum.filter(x, spectrum.eigenvalues)
        found.square().sum().backward()
    wide, signal = vectors.double(), x.detach().cpu().double()
    exact = wide @ (torch.linspace(0, 2, 4097).double()[:, None] * (wide.T @ signal))

    def error(filtered):
        return float((filtered.detach().cpu() - exact).norm() / exact.norm())

    assert spectrum._product._brief is not None
    assert error(found) < 2**-7
    assert found.dtype == x.grad.dtype == torch.float32
    with matmul_precision("high", torch.device("cuda")):
        assert error(spectrum.filter(x, spectrum.eigenvalues)) < 2**-9


CPU = torch.device("cpu")
DEVICES = [
    CPU,
    pytest.param(
        torch.device("cuda", 0),
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ),
]


def matrix(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(23, 4, 3, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("most", [1, 5, 23, 100])
def test_consecutive_rows_are_all_rows(device, dtype, most) -> None:
    rows = matrix(dtype)
    stream = RowStream(rows, device, torch.float32, most)
    for _ in range(2):  # buffers serve again
        chunks = [chunk.clone() for chunk in stream(stream.slices())]
        assert all(len(chunk) <= most and chunk.dtype == torch.float32 for chunk in chunks)
        assert torch.equal(torch.cat(chunks).cpu(), rows.float())


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_rows_in_any_order(device) -> None:
    rows = matrix()
    order = torch.randperm(23, generator=torch.Generator().manual_seed(1)).split(7)
    stream = RowStream(rows, device, torch.float64, 7)
    for place, chunk in zip(order, stream(order), strict=True):
        assert torch.equal(chunk.cpu(), rows[place].double())


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_stream_left_early_starts_again(device) -> None:
    rows = matrix()
    stream = RowStream(rows, device, torch.float32, 4)
    for chunk in stream(stream.slices()):
        assert torch.equal(chunk.cpu(), rows[:4])
        break
    chunks = [chunk.clone() for chunk in stream(stream.slices())]
    assert torch.equal(torch.cat(chunks).cpu(), rows)


def test_a_chunk_has_a_size_in_bytes() -> None:
    narrow, half = torch.empty(2, 1000), torch.empty(2, 1000, dtype=torch.bfloat16)
    assert rows_at_once(narrow) == 2**27 // 4000
    assert rows_at_once(half) == 2**27 // 2000
    assert rows_at_once(torch.empty(2, 2**26)) == 1
    assert rows_at_once(torch.empty(0, 3)) >= 1
