r"""What is computed from a tensor that stays as it is, kept for as long as that tensor lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


class Remembered:
    """Constants derived from tensors: made at the first call, found at later ones.

    An epoch of a few hundred small kernels should not compute the same numbers again. A tensor that
    was changed in place is a new one. Several tensors may be needed: what is made of them is kept
    until another comes in the place of one. What is captured or compiled is not kept: it holds no
    numbers yet; nor is what inference mode makes, which training could not use. Copies are empty.

    Example:
        >>> squares, numbers = Remembered(), torch.tensor([2.0])
        >>> first, again = (squares(numbers, "squares", lambda: numbers**2) for _ in range(2))
        >>> first is again
        True
    """

    def __init__(self) -> None:
        self._known: Any = WeakTensorKeyDictionary()

    def __call__(
        self, source: Tensor, name: Hashable, make: Callable[[], Tensor], *others: Tensor
    ) -> Tensor:
        """``make()``, or what it gave before for this tensor, this name and these others."""
        sources = (source, *others)
        if torch.compiler.is_compiling() or any(
            each.requires_grad or each.is_inference() for each in sources
        ):
            return make()
        states, found = self._known.get(source, {}).get(name, ((), None))
        if len(states) == len(sources) and all(
            known() is each and version == each._version
            for (known, version), each in zip(states, sources, strict=True)
        ):
            return cast(Tensor, found)
        made = make()
        captured = source.is_cuda and torch.cuda.is_current_stream_capturing()
        if not (captured or made.is_inference()):
            states = [(weakref.ref(each), each._version) for each in sources]
            self._known.setdefault(source, {})[name] = (states, made)
        return made

    def __reduce__(self) -> tuple[type[Remembered], tuple[()]]:
        return Remembered, ()
