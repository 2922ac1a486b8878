"""Tensors that share one block of memory stay themselves."""

from __future__ import annotations

import torch
from torch import nn

from specformer.training.engine.memory_block import join, views_of


def test_values_shapes_and_identity_stay():
    tensors = [torch.randn(2, 3, 5), nn.Parameter(torch.randn(2)), torch.randn(2, 1).mT]
    before = [(id(tensor), tensor.detach().clone()) for tensor in tensors]
    block = join(tensors)
    for tensor, (identity, value) in zip(tensors, before, strict=True):
        assert id(tensor) == identity
        assert torch.equal(tensor, value)
        assert tensor.is_contiguous()
    assert isinstance(tensors[1], nn.Parameter)
    assert tensors[1].requires_grad
    assert not block.requires_grad


def test_the_block_is_the_tensors():
    tensors = [torch.zeros(3), torch.zeros(2, 2)]
    block = join(tensors)
    tensors[0].fill_(1.0)
    tensors[1][1, 0] = 2.0
    assert float(block.sum()) == 5.0
    for view, tensor in zip(views_of(block, tensors), tensors, strict=True):
        assert view.data_ptr() == tensor.data_ptr()
        assert view.data_ptr() % 256 == block.data_ptr() % 256  # as an allocator aligns them
    block.zero_()
    assert not any(tensor.any() for tensor in tensors)


def test_an_optimiser_moves_the_block():
    layer = nn.Linear(3, 2)
    plain = nn.Linear(3, 2)
    plain.load_state_dict(layer.state_dict())
    block = join(list(layer.parameters()))
    x = torch.randn(4, 3)
    for each in (layer, plain):
        optimiser = torch.optim.Adam(each.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            optimiser.zero_grad()
            each(x).square().sum().backward()
            optimiser.step()
    for found, expected in zip(
        views_of(block, list(layer.parameters())), plain.parameters(), strict=True
    ):
        torch.testing.assert_close(found, expected.detach())
