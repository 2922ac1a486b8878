"""The same numbers whatever machine has how many cores: all that is computed, by one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def one_thread(asked: bool = True) -> Iterator[None]:
    """Compute with one thread, and with algorithms that repeat, if that is asked for.

    Sums over several threads round in another order. PyTorch's threads are meant and those of the
    BLAS that NumPy and SciPy bring.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
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
