r"""What autograd and compilers may do with our functions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from specformer.errors import ConfigError

Backward = TypeVar("Backward", bound=Callable[..., Any])


def first_order(backward: Backward) -> Backward:
    """Refuse a second derivative through the ``backward`` of a ``torch.autograd.Function``.

    PyTorch's ``once_differentiable`` refuses it only through the gradient handed in; what comes
    through saved inputs would be left out without a word, and a gradient penalty be wrong.
    """
    name = backward.__qualname__.partition(".")[0].lstrip("_")

    @wraps(backward)
    def refusing(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # only if the graph of the gradient is asked for
            raise ConfigError(f"create_graph=True: {name} has no second derivative.")
        return backward(ctx, *gradients)

    return cast(Backward, refusing)


def transforming() -> bool:
    """Whether ``torch.func.grad`` or its like is at work, which takes plain operations alone."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


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
    """A context for cached tensors: autograd refuses those made in inference mode."""
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
