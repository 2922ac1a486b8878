r"""One graph convolution on a single graph (paper §4.3, Eq. 6) and its options."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.activation import Activation, activation_module
from specformer.nn.bases import FeedForwardBases, LinearBases
from specformer.nn.batch_norm import BatchNorm
from specformer.nn.linear import LayerNorm, Linear
from specformer.nn.reset import reset_parts
from specformer.spectrum import AnySpectrum

Norm = Literal["batch", "layer"] | None


class SpectralConv(nn.Module):
    r"""Filter every channel, then optionally normalise, map, activate and add the input back.

    .. math::
        \hat X_{:,c} = \hat S_{:,:,c} X_{:,c}, \qquad X' = \sigma(\mathrm{norm}(\hat X W)) + X

    With every option off it is the filter alone, which is what the six small node
    classification sets use.

    Args:
        bases: :class:`LinearBases` or :class:`FeedForwardBases`, perhaps shared between layers.
        channels: width.
        transform: whether there is a W.
        norm: ``"batch"``, ``"layer"`` or None.
        activation: σ.
        residual: whether X is added.
        bias: whether W comes with a bias.
    """

    def __init__(
        self,
        bases: LinearBases | FeedForwardBases,
        channels: int,
        *,
        transform: bool = False,
        norm: Norm = None,
        activation: Activation = None,
        residual: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.bases = bases
        self.transform = Linear(channels, channels, bias) if transform else nn.Identity()
        self.norm = _make_norm(norm, channels)
        self.activation = activation_module(activation)
        self.residual = residual
        #: Whether it is a filter and nothing else.
        self.is_filter = isinstance(bases, LinearBases) and not (
            transform or norm or activation or residual
        )

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructors do, those of shared bases too."""
        reset_parts(self)

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        filtered = self.bases(x, response, spectrum)
        out: Tensor = self.activation(self.norm(self.transform(filtered)))
        return out + x if self.residual else out


def _make_norm(name: Norm, channels: int) -> nn.Module:
    if name is None:
        return nn.Identity()
    if name == "layer":
        return LayerNorm(channels)
    if name == "batch":
        return BatchNorm(channels)
    raise ConfigError(f"norm={name!r}: choose 'batch', 'layer' or None.")
