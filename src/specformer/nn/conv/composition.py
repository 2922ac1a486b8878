r"""The convolutions of a model, one after another; one filter where they are all filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.nn.conv.bases import FeedForwardBases, LinearBases
from specformer.nn.conv.node_conv import NodeConv
from specformer.nn.conv.residual_block import ResidualBlock, with_neighbours
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, MagneticSpectrum


def model_convs(config: Mapping[str, Any], channels: int) -> nn.ModuleList:
    """The convolutions of a node model of these arguments; they share bases if sharing is small."""
    if config["form"] == "deep":
        return _residual_blocks(config, channels)
    kind = LinearBases if config["bases"] == "linear" else FeedForwardBases
    new_bases = partial(kind, config["num_heads"], channels, config["propagation_dropout"])
    shared = new_bases()
    options = {name: config[name] for name in ("transform", "norm", "activation", "residual")}
    return nn.ModuleList(
        NodeConv(
            shared if config["sharing"] == "small" else new_bases(),
            channels,
            **options,
            bias=config["bias"],
        )
        for _ in range(config["num_layers"])
    )


def _residual_blocks(config: Mapping[str, Any], channels: int) -> nn.ModuleList:
    new_bases = partial(LinearBases, config["num_heads"] + config["local"], channels)
    shared = new_bases()
    return nn.ModuleList(
        ResidualBlock(
            shared if config["sharing"] == "small" else new_bases(),
            config["norm"] or "batch",
            config["propagation_dropout"],
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
    layers = [cast(NodeConv | ResidualBlock, conv) for conv in convs]
    if layers[0].bases.num_heads > responses[0].shape[-1]:  # the deep form's local branch
        responses = [with_neighbours(response, spectrum) for response in responses]
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


def _is_one_filter(convs: Sequence[nn.Module], spectrum: AnySpectrum) -> bool:
    if isinstance(spectrum, MagneticSpectrum):
        return False  # filters mix real and imaginary parts, which have gains of their own
    if not all(isinstance(conv, NodeConv) and conv.is_filter for conv in convs):
        return False
    # The interpolant of a product is not quite the product of interpolants: where dropout makes
    # training go through such filters one by one, evaluation does so too.
    noisy = any(cast(LinearBases, conv.bases).dropout > 0 for conv in convs)
    return not (noisy and (convs[0].training or isinstance(spectrum, ImplicitSpectrum)))
