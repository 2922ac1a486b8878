"""The kernel that cuts batches, :mod:`specformer.kernels.segments`, against its plain twin."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from tests.datasets.coloured_graphs import STORE

from specformer import kernels
from specformer.datasets import BatchShape


@pytest.mark.parametrize("chosen", [[3, 0, 7, 1, 7, 13], [0], list(range(14))])
@pytest.mark.parametrize("spare", [0, 300])
def test_cut(
    chosen: list[int], spare: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = STORE.host_sizes[chosen]
    nodes, pairs = int(sizes.sum()), int((sizes**2).sum())
    shape = BatchShape(len(chosen), nodes + bool(spare), pairs + spare, max_nodes=9)
    monkeypatch.setattr(kernels, "DEVICES", set())
    expected = STORE.batch(torch.tensor(chosen), shape)
    monkeypatch.setattr(kernels, "DEVICES", {device.type})
    found = STORE.to(device).batch(torch.tensor(chosen, device=device), shape)
    for field in fields(expected):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype
            assert torch.equal(one.cpu(), other), field.name
