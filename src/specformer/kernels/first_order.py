r"""Gradients written by hand that have none of their own, and say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

from specformer.errors import ConfigError

Backward = TypeVar("Backward", bound=Callable[..., Any])


def first_order(backward: Backward) -> Backward:
    """Refuse a second derivative through the ``backward`` of a ``torch.autograd.Function``.

    PyTorch's ``once_differentiable`` refuses it only through the gradient handed in; what comes
    through saved inputs would be left out without a word, and a gradient penalty be wrong.

    Example:
        >>> from specformer.kernels.segments import contiguous_segments, segment_softmax
        >>> rows = torch.zeros(2, 1, requires_grad=True)
        >>> shares = segment_softmax(rows, contiguous_segments(torch.tensor([2]), 2))
        >>> torch.autograd.grad(shares[0], rows, create_graph=True)
        Traceback (most recent call last):
        specformer.errors.ConfigError: create_graph=True: SegmentSoftmax has no second derivative.
    """
    name = backward.__qualname__.partition(".")[0].lstrip("_")

    @wraps(backward)
    def refusing(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # only if the graph of the gradient is asked for
            raise ConfigError(f"create_graph=True: {name} has no second derivative.")
        return backward(ctx, *gradients)

    return cast(Backward, refusing)
