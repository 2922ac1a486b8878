r"""Fused GPU kernels, in Triton, of what models do most.

Each is a function with a gradient of its own. Its plain twin in PyTorch stays where it is called
from, for CPUs, other types, and machines where Triton does not run.
Sums are taken in the same order each time and shapes never depend on values, so that a step made of
these can be captured and replayed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specformer import fused

if TYPE_CHECKING:
    from specformer.nn.kernels.affine import linear as linear
    from specformer.nn.kernels.attention import set_attention as set_attention
    from specformer.nn.kernels.columns import column_sum as column_sum
    from specformer.nn.kernels.contiguous import segment_sum as segment_sum
    from specformer.nn.kernels.distances import distance_attention as distance_attention
    from specformer.nn.kernels.entries import basis_entries as basis_entries
    from specformer.nn.kernels.folding import folded_norm as folded_norm
    from specformer.nn.kernels.layer_norm import normalised_rows as normalised_rows
    from specformer.nn.kernels.lift import gelu_lift as gelu_lift
    from specformer.nn.kernels.normalise import normalised as normalised
    from specformer.nn.kernels.pairs import pair_sum as pair_sum
    from specformer.nn.kernels.places import batch_places as batch_places
    from specformer.nn.kernels.softmax import softmax_sum as softmax_sum

_HOMES = {
    "basis_entries": "entries",
    "batch_places": "places",
    "column_sum": "columns",
    "distance_attention": "distances",
    "folded_norm": "folding",
    "gelu_lift": "lift",
    "linear": "affine",
    "normalised": "normalise",
    "normalised_rows": "layer_norm",
    "pair_sum": "pairs",
    "segment_sum": "contiguous",
    "set_attention": "attention",
    "softmax_sum": "softmax",
}


def usable(*tensors: Tensor) -> bool:
    """Whether all tensors are, and stay, float32 on a device that kernels run on.

    Example:
        >>> usable(torch.zeros(2, dtype=torch.float64))
        False
    """
    return all(
        tensor.dtype == torch.float32
        and fused.runs_on(tensor.device)
        and not torch.is_autocast_enabled(tensor.device.type)
        for tensor in tensors
    )


def __getattr__(name: str) -> Any:
    # Late: importing Triton takes a while and only helps on a GPU.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
