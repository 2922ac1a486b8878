r"""The convolutions of a model, one after another: as one filter if they all are, or deep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.nn.conv.node_conv import FeedForwardBases, LinearBases, NodeConv
from specformer.nn.layers.batch_norm import Norm, norm_module
from specformer.nn.layers.linear import Linear, Resettable, joint_linear
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, MagneticSpectrum


class ResidualBlock(Resettable):
    r"""Filter one map of the input, add another map of it, normalise, activate, drop.

    .. math::
        X' = \mathrm{dropout}(\mathrm{ReLU}(\mathrm{norm}(X W_r + \hat S (X W_s))))

    Without ``skip`` there is no :math:`W_r`: what a node knows of itself is what the filter keeps.
    A basis whose weights become zero is switched off, channel by channel. Bases Ŝ are of the
    block's width, perhaps shared between blocks. A ``linear`` block ends with the sum.

    Shapes: x ``[..., n, channels]``, response ``[..., q, heads]``, output as x.
    """

    def __init__(
        self, bases: LinearBases, norm: Norm, dropout: float, skip: bool, linear: bool = False
    ) -> None:
        super().__init__()
        self.bases = bases
        self.skip = Linear(bases.channels, bases.channels) if skip else None
        self.signal = Linear(bases.channels, bases.channels)
        self.norm = norm_module(None if linear else norm, bases.channels)
        self.dropout = nn.Dropout(dropout)
        self.is_linear = linear

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        if self.skip is None:
            out = self.bases(self.signal(x), response, spectrum)
        else:
            skip, signal = joint_linear(x, [self.skip, self.signal]).chunk(2, dim=-1)
            out = skip + self.bases(signal, response, spectrum)
        return out if self.is_linear else self.dropout(self.norm(out).relu())


def with_neighbours(response: Tensor, spectrum: AnySpectrum) -> Tensor:
    r"""Responses with one more, fixed: 1 − λ, a step to the neighbours (:math:`I - L`).

    Beside the learned ones it costs no product of its own. Over a truncated spectrum it acts on
    the part of a signal that the spectrum spans.

    Shapes: ``[..., q, heads]`` to ``[..., q, heads + 1]``.
    """
    if isinstance(spectrum, ImplicitSpectrum):
        values = spectrum.points.values
    else:
        values = spectrum.eigenvalues
    step = (1 - values).to(response).unsqueeze(-1).expand(*response.shape[:-1], 1)
    return torch.cat([response, step], dim=-1)


def model_convs(config: Mapping[str, Any], channels: int) -> nn.ModuleList:
    """The convolutions of a node model of these arguments; they share bases if sharing is small."""
    deep, dropout = config["form"] == "deep", config["propagation_dropout"]
    kind: Any = LinearBases if config["bases"] == "linear" else FeedForwardBases
    conv: Any = ResidualBlock if deep else NodeConv
    if deep:
        arguments = [config["num_heads"] + config["local"], channels]
        options = {"norm": config["norm"] or "batch", "dropout": dropout, "skip": config["skip"]}
        if config["local"]:
            kind = partial(LinearBases, only_last=True)  # a step to the neighbours, as GCN's layer
    else:
        arguments = [config["num_heads"], channels, dropout]
        names = ("transform", "norm", "activation", "residual", "bias")
        options = {"channels": channels, **{name: config[name] for name in names}}
    shared, last = kind(*arguments), config["num_layers"] - 1
    return nn.ModuleList(
        conv(
            shared if config["sharing"] == "small" else kind(*arguments),
            **options,
            **({"linear": True} if config["linear_last"] and layer == last else {}),
        )
        for layer in range(config["num_layers"])
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
