r"""What makes layers fast and changes no number: constants kept, attention packed, two streams."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from specformer.kernels.weighted_attention import Ranges, weighted_attention
from specformer.nn.layers.linear import Linear, joined


class Remembered:
    """Constants derived from tensors: made at the first call, found at later ones.

    An epoch of a few hundred small kernels should not compute the same numbers again. A tensor that
    was changed in place is a new one. Several tensors may be needed: what is made of them is kept
    until another comes in the place of one. What is captured or compiled is not kept: it holds no
    numbers yet; nor is what inference mode makes, which training could not use. Copies are empty.
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
            return found
        made = make()
        captured = source.is_cuda and torch.cuda.is_current_stream_capturing()
        if not (captured or made.is_inference()):
            states = [(weakref.ref(each), each._version) for each in sources]
            self._known.setdefault(source, {})[name] = (states, made)
        return made

    def __reduce__(self) -> tuple[type[Remembered], tuple[()]]:
        return Remembered, ()


#: How often each key counts.
Weights = Tensor | Ranges


def attend(
    maps: Sequence[Linear],
    num_heads: int,
    tokens: Tensor,
    keys: Tensor,
    weights: Weights,
    known: Remembered,
) -> Tensor:
    """Linear maps to queries, keys and values, then heads ``[..., heads, p, width]`` of attention.

    Scores are never held; what follows from the weights is remembered.
    """
    packed = projected(maps, num_heads, tokens, keys)
    return weighted_attention(packed, weights, scale_of(packed), known)


def projected(maps: Sequence[Linear], num_heads: int, tokens: Tensor, keys: Tensor) -> list[Tensor]:
    """Queries, keys and values side by side, ``[..., p, 3, heads, width]``, by one product.

    Where keys are not the tokens themselves: queries, then keys and values.
    """
    parts = [(tokens, maps)] if keys is tokens else [(tokens, maps[:1]), (keys, maps[1:])]
    return [joined(x, some).unflatten(-1, (len(some), num_heads, -1)) for x, some in parts]


def scale_of(packed: Sequence[Tensor]) -> float:
    r"""The factor of the scores, :math:`1 / \sqrt{d_h}`."""
    return 1.0 / math.sqrt(packed[0].shape[-1])


Own = TypeVar("Own")


def side_by_side(
    aside: Callable[[], list[Tensor]], own: Callable[[], Own], device: torch.device
) -> tuple[list[Tensor], Own]:
    """What two functions give that do not need each other.

    While a CUDA graph is captured they become two branches of it, and so do their gradients, as
    PyTorch differentiates on the stream an operation ran on. Chains of small kernels then take the
    time of the longer one. Anywhere else they are two calls, and also without gradients: another
    stream needs memory of its own for matrix products, and evaluation has time.
    """
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if not (capturing and torch.is_grad_enabled()):
        return aside(), own()
    current = torch.cuda.current_stream(device)
    side = _side(current.device_index, current.cuda_stream)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        tensors = aside()
    result = own()
    current.wait_stream(side)
    for tensor in tensors:  # made on one stream, read on the other: not to be reused in between
        tensor.record_stream(current)
    return tensors, result


@cache
def _side(device_index: int, current: int) -> torch.cuda.Stream:
    """The stream beside another, always the same: each keeps memory of its own.

    Streams of high priority are never among those that PyTorch captures on.
    """
    side = torch.cuda.Stream(device_index, priority=-1)
    while side.cuda_stream == current:  # they are taken from a small ring
        side = torch.cuda.Stream(device_index, priority=-1)
    return side
