r"""Products of tall blocks with each other, summed in float64.

A block ``[n, m]`` is read a slab of rows at a time, so that no second copy of it is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

#: Numbers of float64 a slab of rows may hold: 128 MiB.
SLAB = 2**24


def slabs(num_rows: int, width: int) -> Iterator[slice]:
    """Ranges of rows of a block this wide, small enough to be held in float64."""
    height = max(1024, SLAB // max(width, 1))
    for start in range(0, num_rows, height):
        yield slice(start, start + height)


def gram(one: Tensor, other: Tensor | None = None) -> Tensor:
    r""":math:`X^\top Y` of ``[n, m]`` and ``[n, p]`` (Y = X if left out), in float64.

    Of a batch, ``[..., n, m]``, in one product: its matrices are small.

    Example:
        >>> gram(torch.ones(3, 2))
        tensor([[3., 3.],
                [3., 3.]], dtype=torch.float64)
    """
    right = one if other is None else other
    if one.dim() > 2:
        return one.double().mT @ right.double()
    shape = (one.shape[1], right.shape[1])
    total = torch.zeros(shape, dtype=torch.float64, device=one.device)
    for rows in slabs(one.shape[0], one.shape[1] + right.shape[1]):
        left = one[rows].double()
        total.addmm_(left.mT, left if other is None else right[rows].double())
    return total
