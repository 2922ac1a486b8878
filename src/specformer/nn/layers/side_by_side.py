r"""Two pieces of work at the same time, where a CUDA graph is captured."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

Own = TypeVar("Own")


def side_by_side(
    aside: Callable[[], list[Tensor]], own: Callable[[], Own], device: torch.device
) -> tuple[list[Tensor], Own]:
    """What two functions give that do not need each other.

    While a CUDA graph is captured they become two branches of it, and so do their gradients, as
    PyTorch differentiates on the stream an operation ran on. Chains of small kernels then take the
    time of the longer one. Anywhere else they are two calls, and also without gradients: another
    stream needs memory of its own for matrix products, and evaluation has time.

    Example:
        >>> side_by_side(lambda: [torch.ones(2)], lambda: "own", torch.device("cpu"))
        ([tensor([1., 1.])], 'own')
    """
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if not (capturing and torch.is_grad_enabled()):
        return aside(), own()
    current = torch.cuda.current_stream(device)
    side = _side(current.device_index, current.cuda_stream)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        tensors = aside()
    result = own()
    current.wait_stream(side)
    for tensor in tensors:  # made on one stream, read on the other: not to be reused in between
        tensor.record_stream(current)
    return tensors, result


@cache
def _side(device_index: int, current: int) -> torch.cuda.Stream:
    """The stream beside another, always the same: each keeps memory of its own.

    Streams of high priority are never among those that PyTorch captures on.
    """
    side = torch.cuda.Stream(device_index, priority=-1)
    while side.cuda_stream == current:  # they are taken from a small ring
        side = torch.cuda.Stream(device_index, priority=-1)
    return side
