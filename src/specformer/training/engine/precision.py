r"""How exact products are on a GPU, and how numbers repeat on any number of cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from threadpoolctl import threadpool_limits

#: PyTorch's own levels (``torch.set_float32_matmul_precision``): float32, TF32, and TF32 with
#: attention (:func:`specformer.kernels.weighted_attention.carried_attention`) and products with
#: large U (:meth:`specformer.Spectrum.gft`) in bfloat16.
Precision = Literal["highest", "high", "medium"]


@contextmanager
def matmul_precision(level: Precision, device: torch.device) -> Iterator[None]:
    """Set one of PyTorch's levels of float32 products within the block.

    On a CPU nothing changes: less than float32 gains nothing there, and some processors lack the
    instructions that PyTorch would then use.
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


@contextmanager
def one_thread(asked: bool = True) -> Iterator[None]:
    """Compute with one thread, and with deterministic algorithms, if ``asked``.

    Sums over several threads round in another order. This limits PyTorch's threads and those of
    the BLAS in NumPy and SciPy.
    """
    if not asked:
        yield
        return
    threads, repeats = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        with threadpool_limits(1):
            torch.set_num_threads(1)
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(repeats, warn_only=warns)
