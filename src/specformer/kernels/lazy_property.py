r"""Cached properties that compilers can trace."""

from __future__ import annotations

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
