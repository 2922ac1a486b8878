r"""Two independent computations at the same time, while a CUDA graph is captured."""

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
    """The results of two functions that do not depend on each other.

    While a CUDA graph is captured, they become two branches of it, and so do their gradients:
    PyTorch differentiates on the stream that an operation ran on. The two chains of small kernels
    then take the time of the longer one. Otherwise the functions are called one after the other.
    Without gradients too, because a second stream needs its own memory for matrix products.
    """
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if not (capturing and torch.is_grad_enabled()):
        return aside(), own()
    current = torch.cuda.current_stream(device)
    side = _side_stream(current.device_index, current.cuda_stream)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        tensors = aside()
    result = own()
    current.wait_stream(side)
    for tensor in tensors:  # made on one stream, read on the other: not to be reused in between
        tensor.record_stream(current)
    return tensors, result


@cache
def _side_stream(device_index: int, current: int) -> torch.cuda.Stream:
    """Another stream than ``current``, always the same one, because each keeps its own memory.

    It has high priority, because PyTorch never captures on such streams.
    """
    side = torch.cuda.Stream(device_index, priority=-1)
    while side.cuda_stream == current:  # PyTorch hands out streams from a small pool in turn
        side = torch.cuda.Stream(device_index, priority=-1)
    return side
