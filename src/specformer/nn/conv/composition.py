r"""All convolutions of a node model: how they are built, and in which steps they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.nn.conv.node_conv import FeedForwardBases, LinearBases, NodeConv
from specformer.nn.layers.batch_norm import Norm, norm_module
from specformer.nn.layers.linear import Linear, Resettable, has_hooks, joint_linear
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


class LocalBases(LinearBases):
    """Bases of which the last is a step to the neighbours (:func:`with_neighbours`).

    Filters start as that step alone, like a GCN's layer.
    """

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.weight[..., :-1, :])


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
        if deep:
            return LocalBases(heads + 1, channels) if local else LinearBases(heads, channels)
        kind = LinearBases if config["bases"] == "linear" else FeedForwardBases
        return kind(heads, channels, dropout)

    shared = bases() if config["sharing"] == "small" else None
    last = config["num_layers"] - 1
    convs: list[nn.Module] = []
    for layer in range(config["num_layers"]):
        own = bases() if shared is None else shared
        if deep:
            norm: Norm = config["norm"] or "batch"
            linear = config["linear_last"] and layer == last
            convs.append(ResidualBlock(own, norm, dropout, config["skip"], linear))
        else:
            names = ("transform", "norm", "activation", "residual", "bias")
            convs.append(NodeConv(own, channels, **{name: config[name] for name in names}))
    return nn.ModuleList(convs)


#: What maps a signal, a response and a spectrum to the filtered signal.
Step = Callable[[Tensor, Tensor, AnySpectrum], Tensor]


def steps(
    convs: Iterable[nn.Module], responses: list[Tensor], spectrum: AnySpectrum
) -> list[tuple[Step, Tensor]]:
    r"""The convolutions to apply in turn, each with its own response or with a shared one.

    If all are linear filters, they are one step, :math:`x \mapsto a x + U\,\mathrm{diag}(g)\,
    U^\top x`, which takes only two products with U.

    Shapes: responses ``[..., q, heads]``.
    """
    layers = [cast(NodeConv | ResidualBlock, conv) for conv in convs]
    if isinstance(layers[0].bases, LocalBases):
        responses = [with_neighbours(response, spectrum) for response in responses]
    each = [responses[min(layer, len(responses) - 1)] for layer in range(len(layers))]
    if not _are_one_filter(layers, spectrum):
        return list(zip(layers, each, strict=True))
    every = [cast(LinearBases, conv.bases) for conv in layers]
    identity, gains = every[0].identity, every[0].gains(each[0])
    for own, response in zip(every[1:], each[1:], strict=True):
        gains = torch.addcmul(own.identity * gains, own.gains(response), identity + gains)
        identity = identity * own.identity
    return [(partial(_filtered, identity), gains)]


def _filtered(identity: Tensor, x: Tensor, gains: Tensor, spectrum: AnySpectrum) -> Tensor:
    return torch.addcmul(spectrum.filter(x, gains), identity, x)


def is_filter(conv: nn.Module) -> bool:
    """Whether a convolution is a linear filter and nothing else."""
    if not (isinstance(conv, NodeConv) and isinstance(conv.bases, LinearBases)):
        return False
    parts = (conv.transform, conv.norm, conv.activation)
    return not conv.residual and all(isinstance(part, nn.Identity) for part in parts)


def _are_one_filter(convs: Sequence[nn.Module], spectrum: AnySpectrum) -> bool:
    if isinstance(spectrum, MagneticSpectrum):
        return False  # real and imaginary parts have different gains, and filters mix them
    # A hook wants to see the signal after every convolution.
    if not all(is_filter(conv) and not any(map(has_hooks, conv.modules())) for conv in convs):
        return False
    # Interpolating a product differs slightly from multiplying interpolants. With dropout, training
    # applies interpolated filters one by one, so evaluation does so too.
    noisy = any(cast(LinearBases, conv.bases).dropout > 0 for conv in convs)
    return not (noisy and (convs[0].training or isinstance(spectrum, ImplicitSpectrum)))
