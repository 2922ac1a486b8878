r"""Check that signals and responses fit a spectrum: shapes and types only."""

from __future__ import annotations

import numbers
from typing import Any

import torch
from torch import Tensor

from specformer.errors import SpectrumError


def as_columns(x: Any) -> Any:
    """A row of numbers ``[n]`` as one channel, ``[n, 1]``; anything else as it is."""
    return x.unsqueeze(-1) if isinstance(x, Tensor) and x.dim() == 1 else x


def check_signal(
    x: Any, count: int, dtype: torch.dtype, name: str = "x", of: str = "nodes"
) -> None:
    """Refuse what is not ``[..., count, channels]`` in this precision."""
    _check_tensor(x, count, dtype, name)
    if x.shape[-2] != count:
        raise SpectrumError(f"{name} has shape {list(x.shape)}, but the spectrum has {count} {of}.")


def check_response(
    response: Any, count: int, channels: int, dtype: torch.dtype, at: str = "eigenvalues"
) -> None:
    """Refuse what is not ``[..., count, channels]``, with one channel for all of a signal's."""
    _check_tensor(response, count, dtype, "response")
    if response.shape[-2] != count:
        raise SpectrumError(
            f"response has {response.shape[-2]} values, but the spectrum has {count} {at}."
        )
    if 1 not in (channels, response.shape[-1]) and response.shape[-1] != channels:
        raise SpectrumError(f"response has {response.shape[-1]} channels, but x has {channels}.")


def _check_tensor(value: Any, count: int, dtype: torch.dtype, name: str) -> None:
    if not isinstance(value, Tensor):
        raise SpectrumError(f"{name} must be a tensor, not {type(value).__name__}.")
    # Under autocast products bring their factors to one precision.
    if value.dtype != dtype and not torch.is_autocast_enabled(value.device.type):
        raise SpectrumError(
            f"{name} is {value.dtype}, but the spectrum {dtype}; take {name}.to(spectrum.dtype), "
            f"or another dtype of the spectrum."
        )
    if value.dim() < 2:
        shape = list(value.shape)
        raise SpectrumError(f"{name} has shape {shape}, but [..., {count}, channels] is needed.")


def check_precision(dtype: Any) -> None:
    """Refuse a precision in which spectra cannot be computed."""
    if dtype not in (torch.float32, torch.float64):
        raise SpectrumError(f"dtype={dtype}: choose torch.float32 or torch.float64.")


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a positive whole number."""
    if not (isinstance(value, numbers.Integral) and int(value) >= 1):
        raise SpectrumError(f"{name}={value!r} must be a whole number, at least 1.")
