r"""One block of the deep form: the set-to-set filter inside a residual network."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from specformer.nn.conv.bases import LinearBases
from specformer.nn.layers.batch_norm import Norm, norm_module
from specformer.nn.layers.linear import Linear, joined
from specformer.nn.layers.reset import Resettable
from specformer.spectrum import AnySpectrum, ImplicitSpectrum


class ResidualBlock(Resettable):
    r"""Filter one map of the input, add another map of it, normalise, activate, drop.

    .. math::
        X' = \mathrm{dropout}(\mathrm{ReLU}(\mathrm{norm}(X W_r + \hat S (X W_s))))

    A basis whose weights become zero is switched off, channel by channel.

    Args:
        bases: Ŝ, of the block's width, perhaps shared between blocks.
        norm: ``"batch"``, ``"layer"`` or None.
        dropout: of the output.

    Shapes: x ``[..., n, channels]``, response ``[..., q, heads]``, output as x.
    """

    def __init__(self, bases: LinearBases, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.bases = bases
        self.skip = Linear(bases.channels, bases.channels)
        self.signal = Linear(bases.channels, bases.channels)
        self.norm = norm_module(norm, bases.channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        skip, signal = joined(x, [self.skip, self.signal]).chunk(2, dim=-1)
        out = skip + self.bases(signal, response, spectrum)
        return cast(Tensor, self.dropout(self.norm(out).relu()))


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
