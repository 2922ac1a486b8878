r"""Caches, and the limits of what autograd and compilers may do with our functions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from specformer.errors import ConfigError

Backward = TypeVar("Backward", bound=Callable[..., Any])


def first_order(backward: Backward) -> Backward:
    """Refuse a second derivative through the ``backward`` of a ``torch.autograd.Function``.

    PyTorch's ``once_differentiable`` only refuses it through the incoming gradient. The part that
    goes through saved inputs would be missing silently, and a gradient penalty would be wrong.
    """
    name = backward.__qualname__.partition(".")[0].lstrip("_")

    @wraps(backward)
    def refusing(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # only with create_graph=True
            raise ConfigError(
                f"{name} has no second derivative; compute the gradient without create_graph=True."
            )
        return backward(ctx, *gradients)

    return cast(Backward, refusing)


def transforming() -> bool:
    """Whether a transform such as ``torch.func.grad`` is active: it needs plain operations."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


Made = TypeVar("Made")


class lazy_property(cached_property[Made]):  # noqa: N801
    """A ``functools.cached_property`` that stores nothing while a compiler traces it.

    Traced tensors hold no numbers, and compilers cannot trace the lock of Python 3.11's version.
    """

    if not TYPE_CHECKING:  # the types are those of its base

        def __get__(self, owner: Any, kind: type[Any] | None = None) -> Any:
            if owner is not None and torch.compiler.is_compiling():
                return self.func(owner)
            return super().__get__(owner, kind)


def keeping() -> AbstractContextManager[Any]:
    """A context for making cached tensors: autograd refuses those made in inference mode."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(False)


class kept_property(lazy_property[Made]):  # noqa: N801
    """A :class:`lazy_property` whose value is computed inside :func:`keeping`."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        def made(owner: Any) -> Made:
            with keeping():
                return make(owner)

        super().__init__(made)
        self.__doc__ = make.__doc__


class TensorCache:
    """Constants derived from tensors: computed by the first call, returned by later ones.

    An epoch of a few hundred small kernels should not compute the same numbers again. A value is
    kept until one of the tensors it depends on is changed in place or replaced. Nothing is kept
    while a graph is captured or compiled, because tensors hold no numbers then, nor in inference
    mode, because training could not use the result. Copies of a cache are empty.
    """

    def __init__(self) -> None:
        self._values: Any = WeakTensorKeyDictionary()

    def __call__(
        self, source: Tensor, name: Hashable, make: Callable[[], Tensor], *others: Tensor
    ) -> Tensor:
        """Return ``make()``, or the value stored for this tensor, this name and these others."""
        sources = (source, *others)
        if torch.compiler.is_compiling() or any(
            each.requires_grad or each.is_inference() for each in sources
        ):
            return make()
        states, found = self._values.get(source, {}).get(name, ((), None))
        if len(states) == len(sources) and all(
            known() is each and version == each._version
            for (known, version), each in zip(states, sources, strict=True)
        ):
            return found
        made = make()
        captured = source.is_cuda and torch.cuda.is_current_stream_capturing()
        if not (captured or made.is_inference()):
            states = [(weakref.ref(each), each._version) for each in sources]
            self._values.setdefault(source, {})[name] = (states, made)
        return made

    def __reduce__(self) -> tuple[type[TensorCache], tuple[()]]:
        return TensorCache, ()
