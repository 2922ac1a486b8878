r"""Cached properties that training can use even if evaluation computed them first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from specformer.kernels.lazy_property import Made, lazy_property


def keeping() -> AbstractContextManager[Any]:
    """A context for cached tensors: autograd refuses those made in inference mode.

    Example:
        >>> with torch.inference_mode(), keeping():
        ...     torch.ones(1).is_inference()
        False
    """
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(False)


class kept_property(lazy_property[Made]):  # noqa: N801
    """A cached property, for compilers too, computed inside :func:`keeping`."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        def made(owner: Any) -> Made:
            with keeping():
                return make(owner)

        super().__init__(made)
        self.__doc__ = make.__doc__
