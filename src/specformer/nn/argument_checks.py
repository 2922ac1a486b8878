r"""What the arguments of models and schedules may be; errors name the argument and its value."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from typing import Any

from specformer.errors import ConfigError


def check_choices(config: Mapping[str, Any], **choices: Sequence[Any]) -> None:
    """Refuse an argument that is not one of its choices."""
    for name, known in choices.items():
        if config[name] not in known:
            raise ConfigError(f"{name}={config[name]!r}: choose {' or '.join(map(str, known))}.")


def check_counts(config: Mapping[str, Any], *names: str, least: int = 1) -> None:
    """Refuse widths, depths and the like that are not whole numbers, or too small.

    Example:
        >>> check_counts({"num_layers": 0}, "num_layers")
        Traceback (most recent call last):
        specformer.errors.ConfigError: num_layers=0 must be at least 1.
    """
    for name in names:
        if (count := whole_number(name, config[name])) < least:
            bound = f"be at least {least}" if least else "not be negative"
            raise ConfigError(f"{name}={count} must {bound}.")


def check_flags(config: Mapping[str, Any], *names: str) -> None:
    """Refuse switches that are neither on nor off."""
    check_choices(config, **dict.fromkeys(names, (True, False)))


def check_numbers(config: Mapping[str, Any], *names: str) -> None:
    """Refuse what is not a finite number.

    Example:
        >>> check_numbers({"theta": None}, "theta")
        Traceback (most recent call last):
        specformer.errors.ConfigError: theta=None must be a finite number.
    """
    for name in names:
        if not (isinstance(config[name], Real) and isfinite(config[name])):
            raise ConfigError(f"{name}={config[name]!r} must be a finite number.")


def check_positive(config: Mapping[str, Any], *names: str) -> None:
    """Refuse numbers of zero and below."""
    check_numbers(config, *names)
    for name in names:
        if config[name] <= 0:
            raise ConfigError(f"{name}={config[name]} must be positive.")


def check_not_negative(config: Mapping[str, Any], *names: str) -> None:
    """Refuse numbers below zero."""
    check_numbers(config, *names)
    for name in names:
        if config[name] < 0:
            raise ConfigError(f"{name}={config[name]} must not be negative.")


def check_rates(config: Mapping[str, Any], *names: str) -> None:
    """Refuse dropout rates outside of [0, 1]."""
    check_numbers(config, *names)
    for name in names:
        if not 0.0 <= config[name] <= 1.0:
            raise ConfigError(f"{name}={config[name]} must lie between 0 and 1.")


def check_std(config: Mapping[str, Any]) -> None:
    """Refuse an ``init_std`` that no weights can have; None leaves them as layers draw them."""
    if config["init_std"] is not None:
        check_positive(config, "init_std")


def check_split(channels: int, parts: int, name: str = "num_heads") -> None:
    """Refuse a width that its heads, or other parts, cannot share."""
    width, number = whole_number("hidden_channels", channels), whole_number(name, parts)
    if number < 1 or width % number:
        raise ConfigError(f"hidden_channels={width} cannot be split evenly over {name}={number}.")


def whole_number(name: str, value: Any) -> int:
    """The value as an int; anything but a whole number is refused."""
    try:
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}={value!r} must be a whole number.") from None
