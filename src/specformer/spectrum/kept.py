r"""Properties worked out once and kept, for training too if evaluation asks first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")


def keeping() -> AbstractContextManager[Any]:
    """For what is made to be kept: autograd refuses tensors that inference mode has made.

    Example:
        >>> with torch.inference_mode(), keeping():
        ...     torch.ones(1).is_inference()
        False
    """
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


class kept_property(cached_property[Made]):  # noqa: N801
    """A ``functools.cached_property`` that is made as :func:`keeping` has it."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        def made(owner: Any) -> Made:
            with keeping():
                return make(owner)

        super().__init__(made)
        self.__doc__ = make.__doc__
