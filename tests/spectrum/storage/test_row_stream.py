"""Chunks of rows: whatever the place and the precision, the rows themselves."""

from __future__ import annotations

import pytest
import torch

from specformer.spectrum.storage.row_stream import RowStream, rows_at_once

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
