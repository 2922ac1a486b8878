r"""Checks of the arguments of models and schedules; errors name the argument and its value."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch
from torch import Tensor

from specformer.errors import ConfigError
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Spectrum
from specformer.spectrum.sharded import ShardedSpectrum

_POSITIVE = (lambda value: value > 0, "be positive")
_NOT_NEGATIVE = (lambda value: value >= 0, "not be negative")
_RATE = (lambda value: 0 <= value <= 1, "lie between 0 and 1")
_ABOVE_MINUS_ONE = (lambda value: value > -1, "be larger than -1")
_BELOW_ONE = (lambda value: 0 <= value < 1, "be at least 0 and below 1")
#: What numbers have to be, by name. Dropout is a rate, and any other number only finite.
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("epsilon", "init_std", "average_log_degree", "clip", "average"), _POSITIVE),
    **dict.fromkeys(("learning_rate", "filter_learning_rate"), _POSITIVE),
    **dict.fromkeys(("weight_decay", "filter_weight_decay"), _NOT_NEGATIVE),
    **dict.fromkeys(("theta", "a", "b"), _ABOVE_MINUS_ONE),
    **dict.fromkeys(("beta1", "beta2"), _BELOW_ONE),
    "alpha": _RATE,
}


def check_arguments(kind: type, given: Mapping[str, Any], **least: int) -> None:
    """Refuse arguments that are not what the annotations of a class's constructor say.

    Whole numbers are at least 1, or ``least``. Other numbers are finite and in the range that
    belongs to their name. Arguments of other types than numbers, flags and literals are not
    checked.
    """
    for name, parameter in inspect.signature(kind, eval_str=True).parameters.items():
        value, hint = given[name], parameter.annotation
        types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if value is None and NoneType in types:
            continue
        known = [each for one in types if get_origin(one) is Literal for each in get_args(one)]
        if bool in types:
            known = [True, False]
        if known and value not in known:
            known += [None] * (NoneType in types)
            raise ConfigError(f"{name}={value!r}: choose {' or '.join(map(str, known))}.")
        if int in types and whole_number(name, value) < (bound := least.get(name, 1)):
            where = f"be at least {bound}" if bound else "not be negative"
            raise ConfigError(f"{name}={value} must {where}.")
        if float in types:
            if not (isinstance(value, Real) and isfinite(value)):
                raise ConfigError(f"{name}={value!r} must be a finite number.")
            lies, where = _RATE if name.endswith("dropout") else _RANGES.get(name, (isfinite, ""))
            if not lies(value):
                raise ConfigError(f"{name}={value} must {where}.")


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
    mixed = given.is_floating_point and given != dtype and dtype.itemsize >= 4
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


def idle_argument(config: Mapping[str, Any]) -> str | None:
    """The first argument that is set although the model's form does not use it, or None."""
    known = ((name, only) for name, only in _IDLE[config["form"]].items() if name in config)
    return next((name for name, only in known if config[name] != only), None)


def refuse_idle(config: Mapping[str, Any]) -> None:
    """Refuse an argument that is set although the model's form does not use it."""
    if (idle := idle_argument(config)) is not None:
        raise ConfigError(f"{idle}={config[idle]!r} does not apply to form={config['form']!r}.")


def check_call(
    x: Any,
    spectrum: Any,
    in_channels: int,
    dtype: torch.dtype,
    landmarks: Any = None,
    *,
    sparse: bool = False,
) -> None:
    """Refuse inputs of a node model or layer whose types or shapes do not fit.

    ``sparse`` says whether x may be :class:`SparseFeatures`.
    """
    if not isinstance(spectrum, Spectrum | ImplicitSpectrum):
        kind = type(spectrum).__name__
        raise ConfigError(
            "spectrum must come from sf.decompose or sf.approximate, or be the data.spectrum of "
            f"sf.AddSpectrum, not a {kind}."
        )
    if landmarks is not None and not isinstance(landmarks, Keys):
        given = type(landmarks).__name__
        raise ConfigError(f"landmarks must come from spectrum.landmarks(…), not be a {given}.")
    if isinstance(x, SparseFeatures):
        if not sparse:
            raise ConfigError("the features themselves are filtered: give x as a dense tensor.")
    elif not isinstance(x, Tensor) or x.layout != torch.strided:
        given = f"tensor of layout {x.layout}" if isinstance(x, Tensor) else type(x).__name__
        allowed = " or SparseFeatures.from_scipy(…)" if sparse else ""
        raise ConfigError(f"x must be a dense tensor{allowed}, not a {given}.")
    wanted = [spectrum.num_nodes, in_channels]
    if list(x.shape[-2:]) != wanted:
        raise ConfigError(
            f"x has shape {list(x.shape)}, but the spectrum has {wanted[0]} nodes and the model "
            f"in_channels={wanted[1]}."
        )
    types = (x.dtype, dtype, spectrum.dtype)
    if len(set(types)) > 1 and not torch.is_autocast_enabled(x.device.type):
        raise ConfigError(
            "x is {}, the model is {} and the spectrum is {}; convert them to one dtype with "
            ".to(dtype=…).".format(*types)
        )
