r"""The convolutions of a model, one after another; one filter where they are all filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.nn.conv.bases import FeedForwardBases, LinearBases
from specformer.nn.conv.node_conv import SpectralConv
from specformer.spectrum import AnySpectrum, ImplicitSpectrum


def model_convs(config: Mapping[str, Any], channels: int) -> nn.ModuleList:
    """The convolutions of a node model of these arguments; they share bases if sharing is small."""
    kind = LinearBases if config["bases"] == "linear" else FeedForwardBases
    new_bases = partial(kind, config["num_heads"], channels, config["propagation_dropout"])
    shared = new_bases()
    options = {name: config[name] for name in ("transform", "norm", "activation", "residual")}
    return nn.ModuleList(
        SpectralConv(
            shared if config["sharing"] == "small" else new_bases(),
            channels,
            **options,
            bias=config["bias"],
        )
        for _ in range(config["num_layers"])
    )


def convolve(
    convs: Iterable[nn.Module], x: Tensor, responses: list[Tensor], spectrum: AnySpectrum
) -> Tensor:
    r"""All convolutions in turn, each with its own response, or with the one that all share.

    Filters one after another are one, :math:`x \mapsto a x + U\,\mathrm{diag}(g)\,U^\top x`, which
    takes two products with U in all.

    Shapes: x ``[..., n, channels]``, responses ``[..., q, heads]``, output as x.
    """
    layers = [cast(SpectralConv, conv) for conv in convs]
    each = [responses[min(layer, len(responses) - 1)] for layer in range(len(layers))]
    if not _is_one_filter(layers, spectrum):
        for conv, response in zip(layers, each, strict=True):
            x = conv(x, response, spectrum)
        return x
    every = [cast(LinearBases, conv.bases) for conv in layers]
    identity, gains = every[0].identity, every[0].gains(each[0])
    for own, response in zip(every[1:], each[1:], strict=True):
        gains = torch.addcmul(own.identity * gains, own.gains(response), identity + gains)
        identity = identity * own.identity
    return torch.addcmul(spectrum.filter(x, gains), identity, x)


def _is_one_filter(convs: list[SpectralConv], spectrum: AnySpectrum) -> bool:
    if not all(conv.is_filter for conv in convs):
        return False
    # The interpolant of a product is not quite the product of interpolants: where dropout makes
    # training go through such filters one by one, evaluation does so too.
    noisy = any(cast(LinearBases, conv.bases).dropout > 0 for conv in convs)
    return not (noisy and (convs[0].training or isinstance(spectrum, ImplicitSpectrum)))
