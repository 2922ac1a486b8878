r"""Cached properties that compilers can trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch

Made = TypeVar("Made")


class lazy_property(cached_property[Made]):  # noqa: N801
    """A ``functools.cached_property`` that keeps nothing while a compiler traces it.

    There are no numbers to keep then, and compilers cannot trace the lock of Python 3.11's.
    """

    if not TYPE_CHECKING:  # the types are those of its base

        def __get__(self, owner: Any, kind: type[Any] | None = None) -> Any:
            if owner is not None and torch.compiler.is_compiling():
                return self.func(owner)
            return super().__get__(owner, kind)


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
