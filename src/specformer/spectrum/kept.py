r"""Cached properties that training can use even if evaluation computed them first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")


def keeping() -> AbstractContextManager[Any]:
    """A context for cached tensors: autograd refuses those made in inference mode.

    Example:
        >>> with torch.inference_mode(), keeping():
        ...     torch.ones(1).is_inference()
        False
    """
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


class kept_property(cached_property[Made]):  # noqa: N801
    """A ``functools.cached_property`` computed inside :func:`keeping`."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        def made(owner: Any) -> Made:
            with keeping():
                return make(owner)

        super().__init__(made)
        self.__doc__ = make.__doc__
