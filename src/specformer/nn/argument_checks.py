r"""Checks of the arguments of models and schedules; errors name the argument and its value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from specformer.errors import ConfigError
from specformer.nn.layers.batch_norm import ACTIVATIONS
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Spectrum
from specformer.spectrum.sharded import ShardedSpectrum


def check_choices(config: Mapping[str, Any], **choices: Sequence[Any]) -> None:
    """Refuse an argument that is not one of its choices."""
    for name, known in choices.items():
        if config[name] not in known:
            raise ConfigError(f"{name}={config[name]!r}: choose {' or '.join(map(str, known))}.")


def check_flags(config: Mapping[str, Any], *names: str) -> None:
    """Refuse flags that are neither True nor False."""
    check_choices(config, **dict.fromkeys(names, (True, False)))


def check_counts(config: Mapping[str, Any], *names: str, least: int = 1) -> None:
    """Refuse widths, depths and other counts that are not whole numbers or are too small."""
    for name in names:
        if (count := whole_number(name, config[name])) < least:
            bound = f"be at least {least}" if least else "not be negative"
            raise ConfigError(f"{name}={count} must {bound}.")


def check_numbers(
    config: Mapping[str, Any],
    *names: str,
    lies: Callable[[Any], bool] = isfinite,
    where: str = "be a finite number",
) -> None:
    """Refuse values that are not finite numbers, or for which ``lies`` is false."""
    for name in names:
        value = config[name]
        if not (isinstance(value, Real) and isfinite(value)):
            raise ConfigError(f"{name}={value!r} must be a finite number.")
        if not lies(value):
            raise ConfigError(f"{name}={value} must {where}.")


check_positive = partial(check_numbers, lies=lambda value: value > 0, where="be positive")
check_not_negative = partial(check_numbers, lies=lambda value: value >= 0, where="not be negative")
#: For dropout rates.
check_rates = partial(
    check_numbers, lies=lambda value: 0 <= value <= 1, where="lie between 0 and 1"
)


def check_split(channels: int, parts: int, name: str = "num_heads") -> None:
    """Refuse a width that is not a multiple of the number of heads, or of other parts."""
    width, number = whole_number("hidden_channels", channels), whole_number(name, parts)
    if number < 1 or width % number:
        raise ConfigError(f"hidden_channels={width} cannot be split evenly over {name}={number}.")


def whole_number(name: str, value: Any) -> int:
    """The value as an int; refuse anything but a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}={value!r} must be a whole number.") from None


def whole_numbers(name: str, given: Sequence[int]) -> list[int]:
    """The values as a list of ints; refuse anything but whole numbers of at least 1."""
    try:
        numbers = [operator.index(number) for number in given]
    except TypeError:  # a single number, or a value that is not a whole number
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"{name}={given!r}: give a list of whole numbers of at least 1.")
    return numbers


#: Most numbers (n·n·channels) that the entry-wise network on bases may hold.
ENTRY_LIMIT = 2**28


def check_encoding(channels: int, epsilon: float) -> int:
    """The width of an encoding as an int; refuse an odd one: sines and cosines get half each."""
    check_positive({"epsilon": epsilon}, "epsilon")
    channels = whole_number("hidden_channels", channels)
    if channels < 2 or channels % 2:
        raise ConfigError(f"hidden_channels={channels} must be an even number of at least 2.")
    return channels


def check_filter(num_heads: int, dropout: float, decoder: str, attention: bool) -> None:
    """Refuse invalid arguments of a spectral filter."""
    check_counts({"num_heads": num_heads}, "num_heads")
    check_rates({"dropout": dropout}, "dropout")
    check_choices({"decoder": decoder}, decoder=("joint", "heads"))
    if decoder == "heads" and not attention:
        raise ConfigError("attention=False needs decoder='joint': 'heads' decodes by attention.")


def check_eigenvalues(eigenvalues: Any, dtype: torch.dtype) -> None:
    """Refuse eigenvalues that a filter of that precision cannot take."""
    if not isinstance(eigenvalues, Tensor):
        kind = type(eigenvalues).__name__
        raise ConfigError(
            f"eigenvalues must be a tensor, such as spectrum.eigenvalues, not a {kind}."
        )
    if eigenvalues.dim() != 1 or len(eigenvalues) == 0:
        shape = list(eigenvalues.shape)
        raise ConfigError(f"eigenvalues must have shape [q], q at least 1, not {shape}.")
    given = eigenvalues.dtype
    mixed = given.is_floating_point and given != dtype
    if mixed and not torch.is_autocast_enabled(eigenvalues.device.type):
        raise ConfigError(
            f"eigenvalues are {given}, but the filter is {dtype}; convert one of them with "
            ".to(dtype=…)."
        )


def check_explicit_bases(spectrum: AnySpectrum, channels: int) -> Spectrum:
    """The spectrum; refuse one without real eigenvectors, or with too large entry-wise bases."""
    if not isinstance(spectrum, Spectrum) or spectrum.eigenvectors.is_complex():
        raise ConfigError(
            "bases='ffn' needs real eigenvectors: use sf.decompose without charge, or "
            "bases='linear'."
        )
    if isinstance(spectrum, ShardedSpectrum):
        raise ConfigError("bases='ffn' needs all nodes in one process; use bases='linear'.")
    n = spectrum.num_nodes
    entries = n * n * channels
    if not torch.compiler.is_compiling() and entries > ENTRY_LIMIT:
        raise ConfigError(
            f"bases='ffn' would hold {entries * 4 / 2**30:.1f} GiB for {n:,} nodes and "
            f"{channels} channels; use bases='linear'."
        )
    return spectrum


def _check_model(config: Mapping[str, Any], *flags: str, **choices: Sequence[Any]) -> None:
    """Refuse invalid arguments that both models have."""
    check_choices(config, sharing=("small", "medium", "large"), **choices)
    check_counts(config, "hidden_channels", "out_channels", "num_layers", "num_heads")
    check_flags(config, "encoding", "attention", *flags)
    check_rates(config, "transformer_dropout", "feature_dropout", "propagation_dropout")
    if config["init_std"] is not None:
        check_positive(config, "init_std")


#: Arguments that a form of a model does not use, and the only value each may then have.
_IDLE: dict[str, dict[str, Any]] = {
    "paper": {"local": True, "skip": True, "linear_last": False, "max_ring": 0},
    "pairs": {"sharing": "small"},
    "deep": {
        "space": "output",
        "feature_layers": 2,
        "second_dropout": "inside",
        "bases": "linear",
        "transform": False,
        "activation": None,
        "residual": False,
        "bias": True,
    },
}


def check_node_model(config: Mapping[str, Any]) -> None:
    """Refuse invalid arguments of :class:`specformer.Specformer` that its parts do not check."""
    check_counts(config, "in_channels")
    _check_model(
        config,
        *("transform", "residual", "bias", "local", "skip", "linear_last"),
        bases=("linear", "ffn"),
        form=("paper", "deep"),
        space=("output", "hidden", "input"),
        feature_layers=(1, 2),
        second_dropout=("inside", "after"),
    )
    _refuse_idle(config)


def idle_argument(config: Mapping[str, Any]) -> str | None:
    """The first argument that is set although the model's form does not use it, or None."""
    known = ((name, only) for name, only in _IDLE[config["form"]].items() if name in config)
    return next((name for name, only in known if config[name] != only), None)


def check_graph_model(config: Mapping[str, Any]) -> None:
    """Refuse invalid arguments of :class:`specformer.GraphSpecformer`."""
    _check_model(
        config,
        pooling=("mean", "sum", "max"),
        bases_activation=tuple(ACTIVATIONS),
        form=("paper", "pairs"),
    )
    check_counts(config, "fingerprint", "max_ring", least=0)
    if 0 < config["max_ring"] < 3:
        raise ConfigError(f"max_ring={config['max_ring']}: use 0, or at least 3 atoms.")
    check_rates(config, "fingerprint_dropout")
    _refuse_idle(config)


def _refuse_idle(config: Mapping[str, Any]) -> None:
    if (idle := idle_argument(config)) is not None:
        raise ConfigError(f"{idle}={config[idle]!r} does not apply to form={config['form']!r}.")


def check_call(
    x: Any, spectrum: Any, landmarks: Any, config: Mapping[str, Any], dtype: torch.dtype
) -> None:
    """Refuse inputs of a node model whose types or shapes do not fit."""
    if not isinstance(spectrum, Spectrum | ImplicitSpectrum):
        kind = type(spectrum).__name__
        raise ConfigError(
            f"spectrum must come from sf.decompose or sf.approximate, not be a {kind}."
        )
    if landmarks is not None and not isinstance(landmarks, Keys):
        given = type(landmarks).__name__
        raise ConfigError(f"landmarks must come from spectrum.landmarks(…), not be a {given}.")
    if isinstance(x, SparseFeatures):
        if config["space"] == "input":
            raise ConfigError("space='input' filters the features: give x as a dense tensor.")
        shape = [x.num_nodes, x.in_channels]
    elif isinstance(x, Tensor) and x.layout == torch.strided:
        shape = list(x.shape)
    else:
        given = f"tensor of layout {x.layout}" if isinstance(x, Tensor) else type(x).__name__
        raise ConfigError(
            f"x must be a dense tensor or SparseFeatures.from_scipy(…), not a {given}."
        )
    wanted = [spectrum.num_nodes, config["in_channels"]]
    if shape[-2:] != wanted:
        raise ConfigError(
            f"x has shape {shape}, but the spectrum has {wanted[0]} nodes and the model "
            f"in_channels={wanted[1]}."
        )
    types = (x.dtype, dtype, spectrum.dtype)
    if len(set(types)) > 1 and not torch.is_autocast_enabled(x.device.type):
        raise ConfigError(
            "x is {}, the model is {} and the spectrum is {}; convert them to one dtype with "
            ".to(dtype=…).".format(*types)
        )
