r"""Fused GPU kernels, in Triton, of what graph-level models do most.

Each is a function with a gradient of its own. Its plain twin in PyTorch stays where it is called
from, for CPUs, other types, and machines without Triton, which comes with PyTorch's CUDA builds.
Sums are taken in the same order each time and shapes never depend on values, so that a step made of
these can be captured and replayed.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from specformer.nn.kernels.affine import linear as linear
    from specformer.nn.kernels.columns import column_sum as column_sum
    from specformer.nn.kernels.contiguous import segment_sum as segment_sum
    from specformer.nn.kernels.entries import basis_entries as basis_entries
    from specformer.nn.kernels.folding import folded_norm as folded_norm
    from specformer.nn.kernels.layer_norm import normalised_rows as normalised_rows
    from specformer.nn.kernels.lift import gelu_lift as gelu_lift
    from specformer.nn.kernels.moments import column_moments as column_moments
    from specformer.nn.kernels.normalise import normalised_relu as normalised_relu
    from specformer.nn.kernels.pairs import pair_sum as pair_sum
    from specformer.nn.kernels.places import batch_places as batch_places
    from specformer.nn.kernels.softmax import softmax_sum as softmax_sum

#: Types of device the kernels are used on. Triton's interpreter runs them on a CPU, for tests.
DEVICES = {"cuda"}

_HOMES = {
    "basis_entries": "entries",
    "batch_places": "places",
    "column_moments": "moments",
    "column_sum": "columns",
    "folded_norm": "folding",
    "gelu_lift": "lift",
    "linear": "affine",
    "normalised_relu": "normalise",
    "normalised_rows": "layer_norm",
    "pair_sum": "pairs",
    "segment_sum": "contiguous",
    "softmax_sum": "softmax",
}

_INSTALLED = find_spec("triton") is not None


def usable(*tensors: Tensor) -> bool:
    """Whether there is Triton and all tensors are, and stay, float32 on a device it works on.

    Example:
        >>> usable(torch.zeros(2, dtype=torch.float64))
        False
    """
    return _INSTALLED and all(
        tensor.dtype == torch.float32
        and tensor.device.type in DEVICES
        and not torch.is_autocast_enabled(tensor.device.type)
        for tensor in tensors
    )


def __getattr__(name: str) -> Any:
    # Late: importing Triton takes a while and only helps on a GPU.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
