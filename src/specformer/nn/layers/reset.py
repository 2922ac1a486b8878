r"""Parameters drawn anew, and tensors that follow from a module's arguments made anew."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def reset_parts(module: nn.Module) -> None:
    """Draw the parameters of a module's parts anew, as their constructors do.

    Parts are modules that hold numbers themselves. They come in the order in which they were made,
    each once, so that after one seed the numbers are those of a fresh module.
    """
    for part in list(module.modules())[1:]:
        reset = getattr(part, "reset_parameters", None)
        if reset is not None and (part._parameters or part._buffers):
            reset()


class Resettable(nn.Module):
    """A module that holds no numbers itself, only parts."""

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructors do."""
        reset_parts(self)


class Derived(nn.Module, ABC):
    """A module with buffers that follow from its arguments.

    They are no part of its state, and are made anew when a state is loaded or parameters are reset:
    a module from the meta device has none before, and ``to_empty`` leaves there what the memory
    held.
    """

    @abstractmethod
    def derived(self) -> dict[str, Tensor]:
        """The buffers by name."""

    def register_derived(self) -> None:
        """Put them in their places, once the module knows its arguments."""
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
