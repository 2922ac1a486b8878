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
    """Work at one of PyTorch's levels of float32 products, then go back to the one before.

    On a CPU nothing changes: less than float32 gains nothing there, and some processors do not
    know the instructions PyTorch would then use.
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
    """Compute with one thread, and with algorithms that repeat, if that is asked for.

    Sums over several threads round in another order. PyTorch's threads are meant and those of the
    BLAS that NumPy and SciPy bring.
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
