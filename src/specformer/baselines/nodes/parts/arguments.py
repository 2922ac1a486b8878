r"""What the arguments of node-level baselines may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specformer.errors import ConfigError
from specformer.nn.argument_checks import (
    check_counts,
    check_flags,
    check_numbers,
    check_rates,
)
from specformer.nn.pretrained import given

_COUNTS = (
    "in_channels",
    "hidden_channels",
    "out_channels",
    "num_layers",
    "num_rounds",
    "heads",
    "order",
    "steps",
    "max_degree",
    "max_distance",
)
_RATES = ("dropout", "propagation_dropout", "alpha")
#: What a number must be larger than.
_BOUNDS = {"theta": -1.0, "a": -1.0, "b": -1.0}


def checked_arguments(scope: Mapping[str, Any], **least: int) -> dict[str, Any]:
    """A constructor's arguments from its ``locals()``; those that make no model are refused.

    ``least``: what a count must be at least, if that is not 1.

    Example:
        >>> checked_arguments({"order": 0, "dropout": 0.5})
        Traceback (most recent call last):
        specformer.errors.ConfigError: order=0 must be at least 1.
    """
    for name in _COUNTS:
        if name in scope:
            check_counts(scope, name, least=least.get(name, 1))
    check_rates(scope, *(name for name in _RATES if name in scope))
    if "gamma" in scope:
        check_numbers(scope, "gamma")
    for name, bound in _BOUNDS.items():
        if name in scope:
            check_numbers(scope, name)
            if scope[name] <= bound:
                raise ConfigError(f"{name}={scope[name]} must be larger than {bound:g}.")
    if "self_loops" in scope:
        check_flags(scope, "self_loops")
    return given(scope)
