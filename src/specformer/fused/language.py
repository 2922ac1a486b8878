r"""Triton's language and compiler, where it is installed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

try:
    import triton
    from triton import language as tl
except ImportError:  # kernels can then be imported, for their documentation, but not run
    triton = tl = None

__all__ = ["jit", "tl"]


def jit(function: Callable[..., Any], varying: Collection[str]) -> Any:
    """``triton.jit``, or the plain function without Triton.

    Numbers of these names change from one call to the next and are not compiled in: each would
    cost a compilation.
    """
    if triton is None:
        return function
    named = inspect.signature(function).parameters
    return triton.jit(function, do_not_specialize=[name for name in varying if name in named])
