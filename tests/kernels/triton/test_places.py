"""Places of rows and pairs against those that the batch works out itself."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.graphs import SIZES, batch_of

from specformer.kernels.triton.pairs.places import batch_places


@pytest.mark.parametrize("sizes", [SIZES, [0, 0], [2, 5] * 20])
def test_places(sizes: list[int], device: torch.device) -> None:
    batch = batch_of(sizes)
    rows, pairs = len(batch.nodes), len(batch.bond)
    found = batch_places(batch.sizes.to(device), rows, pairs)
    for name in ("starts", "graph", "first", "offsets"):
        assert getattr(found, name).tolist() == getattr(batch, name).tolist(), name
    assert found.node_share.squeeze(1).tolist() == batch.node_mask.tolist()
    assert found.pair_share.squeeze(1).tolist() == batch.pair_mask.tolist()
    assert found.numbers.tolist() == [max(sum(sizes), 1), max(sum(n * n for n in sizes), 1)]
