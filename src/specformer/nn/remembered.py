r"""What is computed from a tensor that stays as it is, kept for as long as that tensor lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


class Remembered:
    """Constants derived from tensors: made at the first call, found at later ones.

    An epoch of a few hundred small kernels should not compute the same numbers again. A tensor that
    was changed in place is a new one. What is captured or compiled is not kept: it holds no numbers
    yet. Copies are empty.

    Example:
        >>> squares, numbers = Remembered(), torch.tensor([2.0])
        >>> first, again = (squares(numbers, "squares", lambda: numbers**2) for _ in range(2))
        >>> first is again
        True
    """

    def __init__(self) -> None:
        self._known: Any = WeakTensorKeyDictionary()

    def __call__(self, source: Tensor, name: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """``make()``, or what it gave before for this tensor and name."""
        if torch.compiler.is_compiling() or source.requires_grad or source.is_inference():
            return make()
        version, found = self._known.get(source, {}).get(name, (None, None))
        if found is not None and version == source._version:
            return cast(Tensor, found)
        made = make()
        if not (source.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._known.setdefault(source, {})[name] = (source._version, made)
        return made

    def __reduce__(self) -> tuple[type[Remembered], tuple[()]]:
        return Remembered, ()
