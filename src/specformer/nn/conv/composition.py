r"""All convolutions of a node model: how they are built, and how they are applied in turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.nn.conv.node_conv import FeedForwardBases, LinearBases, NodeConv
from specformer.nn.layers.batch_norm import Norm, norm_module
from specformer.nn.layers.linear import Linear, Resettable, joint_linear
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, MagneticSpectrum


class ResidualBlock(Resettable):
    r"""A filter with linear maps, a skip connection, normalisation, ReLU and dropout.

    .. math::
        X' = \mathrm{dropout}(\mathrm{ReLU}(\mathrm{norm}(X W_r + \hat S (X W_s))))

    Args:
        bases: the bases Ŝ, of the block's width. Blocks may share them.
        norm: ``"batch"``, ``"layer"`` or None.
        dropout: dropout rate.
        skip: whether there is a :math:`W_r`.
        linear: whether the block ends with the sum, without norm, ReLU and dropout.

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
    r"""Append the fixed response 1 − λ, a step to the neighbours (:math:`I - L`).

    It needs no additional product. With a truncated spectrum, it acts on the part of a signal that
    the spectrum spans.

    Shapes: ``[..., q, heads]`` to ``[..., q, heads + 1]``.
    """
    if isinstance(spectrum, ImplicitSpectrum):
        values = spectrum.points.values
    else:
        values = spectrum.eigenvalues
    step = (1 - values).to(response).unsqueeze(-1).expand(*response.shape[:-1], 1)
    return torch.cat([response, step], dim=-1)


def build_convs(config: Mapping[str, Any], channels: int) -> nn.ModuleList:
    """The convolutions of a node model with these arguments; small sharing shares their bases."""
    deep, dropout = config["form"] == "deep", config["propagation_dropout"]

    def bases() -> Any:
        heads, local = config["num_heads"], config["local"]
        if deep:  # the local basis comes last, and filters start as that step, like a GCN's layer
            return LinearBases(heads + local, channels, only_last=local)
        kind = LinearBases if config["bases"] == "linear" else FeedForwardBases
        return kind(heads, channels, dropout)

    shared, last = bases(), config["num_layers"] - 1
    convs: list[nn.Module] = []
    for layer in range(config["num_layers"]):
        own = shared if config["sharing"] == "small" else bases()
        if deep:
            norm: Norm = config["norm"] or "batch"
            linear = config["linear_last"] and layer == last
            convs.append(ResidualBlock(own, norm, dropout, config["skip"], linear))
        else:
            names = ("transform", "norm", "activation", "residual", "bias")
            convs.append(NodeConv(own, channels, **{name: config[name] for name in names}))
    return nn.ModuleList(convs)


def convolve(
    convs: Iterable[nn.Module], x: Tensor, responses: list[Tensor], spectrum: AnySpectrum
) -> Tensor:
    r"""Apply all convolutions in turn, each with its own response or with a shared one.

    If all are linear filters, they are combined into one, :math:`x \mapsto a x +
    U\,\mathrm{diag}(g)\,U^\top x`, which takes only two products with U.

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
        return False  # real and imaginary parts have different gains, and filters mix them
    if not all(isinstance(conv, NodeConv) and conv.is_filter for conv in convs):
        return False
    # Interpolating a product differs slightly from multiplying interpolants. With dropout, training
    # applies interpolated filters one by one, so evaluation does so too.
    noisy = any(cast(LinearBases, conv.bases).dropout > 0 for conv in convs)
    return not (noisy and (convs[0].training or isinstance(spectrum, ImplicitSpectrum)))
