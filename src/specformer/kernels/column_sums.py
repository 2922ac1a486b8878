r"""Sums over the rows of many matrices, as a CPU or a GPU computes them best."""

from __future__ import annotations

import torch
from torch import Tensor


def column_sums(rows: Tensor) -> Tensor:
    """Sums over the last axis but one, ``[..., n, channels]`` to ``[..., 1, channels]``.

    On a GPU as a product with ones: reductions are slow for many rows and few columns, 11 µs
    instead of 4 for 2,708 rows on an H200.
    """
    return ones_product(rows) if rows.is_cuda else rows.sum(dim=-2, keepdim=True)


def ones_product(rows: Tensor) -> Tensor:
    """:func:`column_sums` as a GPU computes them.

    Example:
        >>> ones_product(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[4., 6.]])
    """
    ones = _ones(rows.shape[-2], rows.dtype, rows.device).view(*(1,) * (rows.dim() - 1), -1)
    return ones.expand(*rows.shape[:-2], 1, -1) @ rows


_ONES: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}


def _ones(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A vector of ones, made once: filling it would cost a kernel per call.

    None is ever thrown away, because captured graphs may read it.
    """
    room = 1 << (length - 1).bit_length() if length else 0
    known = _ONES.get((room, dtype, device))
    if known is None:
        known = torch.ones(room, dtype=dtype, device=device)
        # What is compiled or captured now is not filled until it runs.
        captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if not (captured or torch.compiler.is_compiling()):
            _ONES[room, dtype, device] = known
    return known[:length]
