"""Activations by name."""

from __future__ import annotations

from typing import Literal

from torch import nn

from specformer.errors import ConfigError

Activation = Literal["relu", "gelu", "tanh"] | None

#: Their names.
ACTIVATIONS = ("relu", "gelu", "tanh", None)

_MODULES: dict[str | None, type[nn.Module]] = {
    None: nn.Identity,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
}


def activation_module(name: Activation) -> nn.Module:
    """The module of that name; None is the identity."""
    if name not in ACTIVATIONS:
        raise ConfigError(f"activation={name!r}: choose relu, gelu, tanh or None.")
    return _MODULES[name]()
