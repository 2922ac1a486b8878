"""Gated pairs against plain indexing."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.graphs import assert_same, batch_of, index_of, random
from torch import Tensor

from specformer.kernels.triton.gating import gated_pairs


@pytest.mark.parametrize("channels", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_gated_pairs(channels: int, device: torch.device) -> None:
    batch = batch_of()
    index = index_of(batch, device)

    def plain(ends: Tensor, own: Tensor) -> Tensor:
        q, k = ends[batch.target, :channels], ends[batch.source, channels:]
        x = (q + k) * own[:, :channels]
        return (x / (1 + x.abs()).sqrt() + own[:, channels:]) * batch.pair_mask[:, None]

    rows, pairs = len(batch.nodes), len(batch.bond)
    inputs = [random(rows, 2 * channels, seed=0), random(pairs, 2 * channels, seed=1)]
    assert_same(lambda *tensors: gated_pairs(*tensors, index), plain, inputs, device)
