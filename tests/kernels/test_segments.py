"""Sums, maxima and softmaxes over segments, against loops and against gradcheck."""

from __future__ import annotations

import pytest
import torch
from tests.drawn import random

from specformer.kernels.segments import (
    Segments,
    Slots,
    at_least_float32,
    contiguous_segments,
    scattered_segments,
    segment_max,
    segment_softmax,
    segment_sum,
    sum_by_index,
    sum_by_offsets,
)

LENGTHS = [3, 0, 1, 4]
ROWS = 11  # three of them in no segment


def contiguous() -> Segments:
    return contiguous_segments(torch.tensor(LENGTHS), ROWS)


def scattered() -> Segments:
    return scattered_segments(torch.tensor([2, 0, 4, 3, 0, 3, 3, 0, 2, 4, 3]), 4)


def members(segments: Segments) -> list[list[int]]:
    index = segments.index.tolist()
    return [[p for p in range(ROWS) if index[p] == s] for s in range(segments.count)]


def test_contiguous_segments_follow_one_another() -> None:
    assert contiguous().index.tolist() == [0, 0, 0, 2, 3, 3, 3, 3, 4, 4, 4]
    assert contiguous().offsets.tolist() == [0, 3, 3, 4, 8]
    assert contiguous().is_empty.tolist() == [False, True, False, False]


def test_scattered_segments_are_sorted_stably() -> None:
    assert scattered().order.tolist() == [1, 4, 7, 0, 8, 3, 5, 6, 10, 2, 9]
    assert scattered().offsets.tolist() == [0, 3, 3, 5, 9]


@pytest.mark.parametrize("make", [contiguous, scattered])
@pytest.mark.parametrize("way", [sum_by_index, sum_by_offsets])
def test_both_ways_of_adding(make, way) -> None:
    rows, segments = random(ROWS, 2), make()
    expected = torch.stack(
        [sum((rows[p] for p in group), torch.zeros(2)) for group in members(segments)]
    )
    torch.testing.assert_close(way(rows, segments), expected.double())
    torch.testing.assert_close(segment_sum(rows, segments), expected.double())


@pytest.mark.parametrize("make", [contiguous, scattered])
def test_gradient_of_sums(make) -> None:
    segments = make()
    rows = random(ROWS, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: segment_sum(x, segments), rows)


def test_the_way_of_a_gpu_does_not_read_rows_of_no_segment() -> None:
    rows = random(ROWS, 2)
    rows[8:] = torch.nan
    assert sum_by_offsets(rows, contiguous()).isfinite().all()
    assert sum_by_index(rows, contiguous()).isfinite().all()


def test_spread_gives_each_row_its_segments_value() -> None:
    values = random(4, 2)
    spread = contiguous().gather(values, outside=-1.0)
    for p, s in enumerate(contiguous().index.tolist()):
        expected = values[s] if s < 4 else torch.full((2,), -1.0, dtype=torch.float64)
        torch.testing.assert_close(spread[p], expected)


@pytest.mark.parametrize("make", [contiguous, scattered])
def test_largest_of_each_segment(make) -> None:
    rows, segments = random(ROWS, 2), make()
    rows[segments.index == 4] = 100.0
    largest = segments.max(rows)
    assert not largest[1].any()
    torch.testing.assert_close(largest[3], rows[segments.index == 3].max(dim=0).values)


@pytest.mark.parametrize("make", [contiguous, scattered])
def test_rows_that_are_equally_large_share_the_gradient(make) -> None:
    rows, segments = random(ROWS, 8).sign().requires_grad_(), make()
    probe = random(segments.count, 8, seed=1)  # PyTorch shares positive gradients only
    (found,) = torch.autograd.grad((segment_max(rows, segments) * probe).sum(), rows)
    largest = [rows[segments.index == s].amax(dim=0) @ probe[s] for s in (0, 2, 3)]
    (expected,) = torch.autograd.grad(sum(largest), rows)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("make", [contiguous, scattered])
def test_softmax_is_that_of_each_segment(make) -> None:
    rows, segments = random(ROWS, 2), make()
    shares = segment_softmax(rows, segments)
    for group in members(segments):
        torch.testing.assert_close(shares[group], rows[group].softmax(dim=0))
    assert not shares[segments.index == 4].any()


@pytest.mark.parametrize("make", [contiguous, scattered])
def test_gradient_of_softmax(make) -> None:
    rows, segments = random(ROWS, 2).requires_grad_(), make()
    assert torch.autograd.gradcheck(lambda x: segment_softmax(x, segments), rows)


@pytest.mark.parametrize("large", [1e4, -1e4])
def test_softmax_of_large_numbers(large: float) -> None:
    rows = (random(ROWS, 2, dtype=torch.float32) + large).requires_grad_()
    shares = segment_softmax(rows, contiguous())
    torch.testing.assert_close(shares[4:8].sum(dim=0), torch.ones(2))
    shares.square().sum().backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()


def test_bfloat16_is_added_in_float32() -> None:
    ones = torch.ones(1000, 1, dtype=torch.bfloat16, requires_grad=True)
    total = segment_sum(ones, contiguous_segments(torch.tensor([1000]), 1000))
    assert total.item() == 1000.0
    total.sum().backward()
    assert ones.grad is not None
    assert ones.grad.dtype == torch.bfloat16
    assert at_least_float32(ones).dtype == torch.float32
    assert at_least_float32(random(1)).dtype == torch.float64


def test_rows_go_to_their_slots_and_come_back() -> None:
    slots, rows = Slots(torch.tensor([4, 0, 6, 1, 6]), size=6), random(5, 2)
    dense = slots.scatter(rows)
    expected = torch.zeros(6, 2, dtype=rows.dtype)
    for row, place in ((0, 4), (1, 0), (3, 1)):
        expected[place] = rows[row]
    assert torch.equal(dense, expected)
    placed = torch.tensor([True, True, False, True, False])
    assert torch.equal(slots.gather(dense), rows * placed.unsqueeze(1))


@pytest.mark.parametrize("name", ["scatter", "gather"])
def test_gradients_of_slots(name: str) -> None:
    slots = Slots(torch.tensor([4, 0, 6, 1, 6]), size=6)
    rows = random(5 if name == "scatter" else 6, 2).requires_grad_()
    move = getattr(slots, name)
    assert torch.autograd.gradcheck(move, rows)
    assert torch.autograd.gradgradcheck(lambda x: move(x).square(), rows)
