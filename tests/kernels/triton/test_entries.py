"""Entries of bases against products of padded matrices."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.triton.graphs import assert_same, batch_of, index_of, random
from torch import Tensor

from specformer.kernels.triton import entries
from specformer.kernels.triton.entries import basis_entries


@pytest.mark.parametrize(
    ("sizes", "heads", "split"), [([3, 1, 0, 6], 1, 4), ([17, 2], 8, 4), ([17], 2, 1)]
)
def test_entries(
    sizes: list[int], heads: int, split: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_ROWS", 16)
    monkeypatch.setattr(entries, "_SPLIT", split)
    batch = batch_of(sizes)
    index = index_of(batch, device)
    vectors = batch.eigenvectors.to(device)

    def plain(response: Tensor) -> Tensor:
        parts, row, pair = [], 0, 0
        for n in sizes:
            u = batch.eigenvectors[pair : pair + n * n].view(n, n).double()
            bases = [u @ torch.diag(response[row : row + n, m]) @ u.T for m in range(heads)]
            parts.append(torch.stack([torch.eye(n).double(), *bases], dim=-1).flatten(0, 1))
            row, pair = row + n, pair + n * n
        return torch.cat([*parts, response.new_zeros(len(batch.bond) - pair, heads + 1)])

    response = random(len(batch.nodes), heads, seed=0)
    largest = batch.max_nodes
    assert_same(lambda x: basis_entries(x, vectors, index, largest), plain, [response], device)
