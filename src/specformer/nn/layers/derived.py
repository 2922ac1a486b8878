r"""What a module derives from its arguments and inputs alone: buffers, and kept results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from specformer.kernels.tracing import TensorCache

Owner = TypeVar("Owner", bound=nn.Module)


def remembered(method: Callable[[Owner, Tensor], Tensor]) -> Callable[[Owner, Tensor], Tensor]:
    """Keep the result of a method while its argument and its module's buffers stay the same."""

    @wraps(method)
    def remembering(self: Owner, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return method(self, x)
        cache: TensorCache = vars(self).setdefault("_results", TensorCache())
        return cache(x, method.__name__, lambda: method(self, x), *self.buffers())

    return remembering


class DerivedBuffers(nn.Module, ABC):
    """A module with buffers that are computed from its arguments.

    They are not part of the state dict. They are computed again when a state is loaded or
    parameters are reset: a module built on the meta device has no values for them, and ``to_empty``
    leaves them uninitialised.
    """

    @abstractmethod
    def derived(self) -> dict[str, Tensor]:
        """The buffers by name."""

    def register_derived(self) -> None:
        """Register the buffers; call it when :meth:`derived` has its arguments."""
        for name, tensor in self.derived().items():
            self.register_buffer(name, tensor, persistent=False)

    def reset_parameters(self) -> None:
        with torch.no_grad():
            for name, tensor in self.derived().items():
                getattr(self, name).copy_(tensor)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Tensor],
        prefix: str,
        local_metadata: Mapping[str, Any],
        *rest: Any,
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
        for name, tensor in self.derived().items():
            held = getattr(self, name)
            if not held.is_meta:
                with torch.no_grad():
                    held.copy_(tensor)
            elif local_metadata.get("assign_to_params_buffers"):
                setattr(self, name, tensor.to(held.dtype))
