r"""What a model's arguments may be; errors name the argument and its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specformer.errors import ConfigError


def check_choices(config: Mapping[str, Any], **choices: Sequence[Any]) -> None:
    """Refuse an argument that is none of its choices."""
    for name, known in choices.items():
        if config[name] not in known:
            raise ConfigError(f"{name}={config[name]!r}: choose {' or '.join(map(str, known))}.")


def check_counts(config: Mapping[str, Any], *names: str) -> None:
    """Refuse widths, depths and the like below 1.

    Example:
        >>> check_counts({"num_layers": 0}, "num_layers")
        Traceback (most recent call last):
        specformer.errors.ConfigError: num_layers=0 must be at least 1.
    """
    for name in names:
        if config[name] < 1:
            raise ConfigError(f"{name}={config[name]} must be at least 1.")


def check_rates(config: Mapping[str, Any], *names: str) -> None:
    """Refuse rates of dropout that are none."""
    for name in names:
        if not 0.0 <= config[name] <= 1.0:
            raise ConfigError(f"{name}={config[name]} must lie between 0 and 1.")


def check_std(config: Mapping[str, Any]) -> None:
    """Refuse an ``init_std`` that no weights can have; None leaves them as layers draw them."""
    if config["init_std"] is not None and not config["init_std"] > 0:
        raise ConfigError(f"init_std={config['init_std']} must be positive.")


def check_split(channels: int, parts: int, name: str = "num_heads") -> None:
    """Refuse a width that its heads, or other parts, cannot share."""
    if parts < 1 or channels % parts:
        raise ConfigError(f"hidden_channels={channels} cannot be split evenly over {name}={parts}.")
