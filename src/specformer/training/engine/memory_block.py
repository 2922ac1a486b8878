r"""Many tensors in one block of memory, so that one kernel reads or writes all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Each tensor begins at a multiple of this many numbers: products want addresses as an allocator
#: gives them.
_ALIGNED = 64


@torch.no_grad()
def join(tensors: Sequence[Tensor]) -> Tensor:
    """Move tensors of one precision into one block ``[numbers]``, where they stay themselves.

    Example:
        >>> pair = [torch.ones(2), torch.zeros(1)]
        >>> block = join(pair)
        >>> _ = block.fill_(7.0)
        >>> pair
        [tensor([7., 7.]), tensor([7.])]
    """
    block = tensors[0].new_zeros(sum(map(_room, tensors)), requires_grad=False)
    for tensor, view in zip(tensors, views_of(block, tensors), strict=True):
        view.copy_(tensor)
        tensor.data = view
    return block


def views_of(block: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a block that correspond to those tensors, each of its tensor's shape."""
    views, start = [], 0
    for tensor in tensors:
        views.append(block[start : start + tensor.numel()].view(tensor.shape))
        start += _room(tensor)
    return views


def _room(tensor: Tensor) -> int:
    return -(-tensor.numel() // _ALIGNED) * _ALIGNED
