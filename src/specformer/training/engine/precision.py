r"""How exact products of float32 numbers are on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

#: PyTorch's own levels (``torch.set_float32_matmul_precision``): float32, TF32, and TF32 with
#: attention (:func:`specformer.kernels.weighted_attention.carried_attention`) and products with
#: large U (:meth:`specformer.Spectrum.gft`) in bfloat16.
Precision = Literal["highest", "high", "medium"]


@contextmanager
def matmul_precision(level: Precision, device: torch.device) -> Iterator[None]:
    """Work at one of PyTorch's levels of float32 products, then go back to the one before.

    On a CPU nothing changes: less than float32 gains nothing there, and some processors do not
    know the instructions PyTorch would then use.

    Example:
        >>> with matmul_precision("medium", torch.device("cuda")):
        ...     torch.get_float32_matmul_precision()
        'medium'
    """
    if device.type == "cpu":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
