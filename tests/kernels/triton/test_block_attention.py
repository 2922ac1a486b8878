"""Attention within sets against the softmax of each set's scores."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.graphs import assert_same, random
from torch import Tensor, nn

from specformer.kernels.triton.block_attention import block_attention


@pytest.mark.parametrize(
    ("sizes", "heads", "width", "spare"),
    [
        ([2, 0, 17, 1, 40], 2, 5, 3),
        ([65, 3], 1, 20, 0),
        ([0, 0], 1, 16, 2),
        pytest.param([130, 1, 64, 33], 2, 33, 70, marks=pytest.mark.slow),
    ],
)
def test_set_attention(
    sizes: list[int], heads: int, width: int, spare: int, device: torch.device
) -> None:
    scale = width**-0.5
    ends = torch.tensor(sizes).cumsum(0)
    offsets = nn.functional.pad(ends, (1, 0)).to(device)

    def plain(packed: Tensor) -> Tensor:
        parts = []
        for queries, keys, values in (part.unbind(1) for part in packed.split([*sizes, spare])):
            scores = scale * torch.einsum("ihc,jhc->hij", queries, keys)
            parts.append(torch.einsum("hij,jhc->ihc", scores.softmax(dim=-1), values))
        return torch.cat([*parts[:-1], torch.zeros_like(parts[-1])])

    packed = 2.0 * random(sum(sizes) + spare, 3, heads, width, seed=0)
    largest = max(sizes) + 2
    assert_same(lambda x: block_attention(x, offsets, largest, scale), plain, [packed], device)
