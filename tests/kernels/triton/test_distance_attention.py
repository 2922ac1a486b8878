"""Attention with numbers by distance against the softmax of all scores."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.graphs import assert_same, random
from torch import Tensor

from specformer.kernels.triton.distance_attention import distance_attention


@pytest.mark.parametrize(
    ("runs", "heads", "rows", "width", "buckets"),
    [(2, 2, 70, 5, 6), (1, 1, 1, 8, 3), pytest.param(1, 2, 130, 20, 22, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("kind", [torch.uint8, torch.int32])
def test_distance_attention(
    runs: int, heads: int, rows: int, width: int, buckets: int, kind, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(0)
    distances = torch.randint(buckets, (rows, rows), generator=generator)
    there = distances.to(device, kind)

    def plain(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        scores = width**-0.5 * query @ key.mT + table[..., distances]
        return scores.softmax(dim=-1) @ value

    projections = [2.0 * random(runs, heads, rows, width, seed=seed) for seed in range(3)]
    assert_same(
        lambda *tensors: distance_attention(*tensors, there),
        plain,
        [*projections, random(runs, heads, buckets, seed=3)],
        device,
    )
