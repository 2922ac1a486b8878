r"""The filters of a model, and several of them computed as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from specformer.kernels.weighted_attention import FlatSpectra
from specformer.nn.filter.filter import SpectralFilter
from specformer.spectrum import Tokens


def model_filters(config: Mapping[str, Any]) -> nn.ModuleList:
    """The filters of a model of these arguments: one or, if sharing is large, one per layer."""
    return nn.ModuleList(
        SpectralFilter(
            config["hidden_channels"],
            config["num_heads"],
            config["num_blocks"],
            decoder=config["decoder"],
            dropout=config["transformer_dropout"],
            epsilon=config["epsilon"],
            encoding=config["encoding"],
            attention=config["attention"],
        )
        for _ in range(config["num_layers"] if config["sharing"] == "large" else 1)
    )


def decode_together(filters: Sequence[SpectralFilter], tokens: Tokens | FlatSpectra) -> Tensor:
    """What filters of one shape make of the same tokens, ``[filters, p, heads]``.

    Their parameters are stacked along a run axis (:mod:`specformer.nn.layers.linear`) in every
    call, which copies them, but runs one chain of kernels instead of one per filter.

    Example:
        >>> from specformer.spectrum.distinct import distinct
        >>> filters = [SpectralFilter(8, 2) for _ in range(3)]
        >>> decode_together(filters, distinct(torch.linspace(0, 2, 10)).tokens).shape
        torch.Size([3, 10, 2])
    """
    parameters = [dict(filt.named_parameters()) for filt in filters]
    stacked = {
        f"filter.{name}": torch.stack([own[name] for own in parameters]) for name in parameters[0]
    }
    return cast(Tensor, functional_call(_Decoding(filters[0]), stacked, (tokens,)))


class _Decoding(nn.Module):
    """A filter's :meth:`SpectralFilter.decode` as a call."""

    def __init__(self, filt: SpectralFilter) -> None:
        super().__init__()
        self.filter = filt

    def forward(self, tokens: Tokens | FlatSpectra) -> Tensor:
        return self.filter.decode(tokens)
