"""Sums over segments and rows from their segments, against PyTorch's own operations."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.graphs import assert_same, random

from specformer.kernels import segments as plain
from specformer.kernels.segments import contiguous_segments, scattered_segments
from specformer.kernels.triton.segment_rows import gathered, segment_sums

#: A segment per row, an empty one, one of more rows than are read at once; rows without a segment.
LENGTHS = [3, 1, 0, 30]


def of_both_kinds() -> dict[str, plain.Segments]:
    sorted_rows = contiguous_segments(torch.tensor(LENGTHS), sum(LENGTHS) + 2)
    mixed = sorted_rows.index[torch.randperm(36, generator=torch.Generator().manual_seed(0))]
    return {"sorted": sorted_rows, "mixed": scattered_segments(mixed, len(LENGTHS))}


@pytest.mark.parametrize("kind", ["sorted", "mixed"])
@pytest.mark.parametrize("columns", [1, 5, 172])
def test_sums(kind: str, columns: int, device: torch.device) -> None:
    segments = of_both_kinds()[kind]
    rows = random(36, columns, seed=1)
    expected = torch.zeros(5, columns, dtype=rows.dtype).index_add(0, segments.index, rows)[:-1]
    order = None if segments.order is None else segments.order.to(device)
    found = segment_sums(rows.to(device, torch.float32), segments.offsets.to(device), order)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 5, 172])
def test_gathered(columns: int, device: torch.device) -> None:
    values, index = random(4, columns, seed=1).float(), of_both_kinds()["mixed"].index
    found = gathered(values.to(device), index.to(device), 7.0)
    expected = torch.cat([values, torch.full((1, columns), 7.0)])[index]
    assert torch.equal(found.cpu(), expected)


def test_some_columns_of_a_matrix(device: torch.device) -> None:
    """They are read where they lie."""
    matrix, segments = random(36, 12, seed=1).float().to(device), of_both_kinds()["mixed"]
    index, offsets, order = (
        each.to(device) for each in (segments.index, segments.offsets, segments.order)
    )
    part = matrix[:, 3:8]
    assert torch.equal(
        segment_sums(part, offsets, order), segment_sums(part.contiguous(), offsets, order)
    )
    assert torch.equal(
        gathered(part[:4], index, 7.0), gathered(matrix[:4, 3:8].clone(), index, 7.0)
    )


@pytest.mark.parametrize("name", ["scatter", "gather"])
def test_slots(name: str, device: torch.device) -> None:
    index = torch.tensor([4, 0, 6, 1, 6])
    one_hot = torch.nn.functional.one_hot(index, 7)[:, :-1].double()
    matrix = one_hot.mT if name == "scatter" else one_hot
    move = getattr(plain.Slots(index.to(device), size=6), name)
    assert_same(
        move, lambda x: matrix.to(x.dtype) @ x, [random(matrix.shape[1], 6, seed=2)], device
    )


def test_nothing_to_do(device: torch.device) -> None:
    none = torch.zeros(0, 3, device=device)
    offsets = torch.zeros(3, dtype=torch.long, device=device)
    assert segment_sums(none, offsets, None).tolist() == [[0.0] * 3] * 2
    assert gathered(none, offsets[:0], 1.0).shape == (0, 3)
    assert gathered(none, offsets, 1.0).tolist() == [[1.0] * 3] * 3


@pytest.mark.parametrize("function", [plain.segment_sum, plain.segment_gather])
def test_gradients(function, device: torch.device) -> None:
    segments = of_both_kinds()["mixed"]
    rows = 36 if function is plain.segment_sum else len(LENGTHS)
    here = plain.Segments(*(each.to(device) for each in vars(segments).values()))

    def fused(x):
        return function(x, here)

    def slow(x):
        one_hot = torch.nn.functional.one_hot(segments.index, 5)[:, :-1].to(x.dtype)
        return (one_hot.mT if rows == 36 else one_hot) @ x

    assert_same(fused, slow, [random(rows, 6, seed=2)], device)
