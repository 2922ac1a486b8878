r"""One graph convolution on a single graph (paper §4.3, Eq. 6) and its options."""

from __future__ import annotations

from torch import Tensor, nn

from specformer.nn.conv.bases import FeedForwardBases, LinearBases
from specformer.nn.layers.activation import Activation, activation_module
from specformer.nn.layers.batch_norm import Norm, norm_module
from specformer.nn.layers.linear import Linear
from specformer.nn.layers.reset import Resettable
from specformer.spectrum import AnySpectrum


class NodeConv(Resettable):
    r"""Filter every channel, then optionally normalise, map, activate and add the input back.

    .. math::
        \hat X_{:,c} = \hat S_{:,:,c} X_{:,c}, \qquad X' = \sigma(\mathrm{norm}(\hat X W)) + X

    With every option off it is the filter alone, as on the paper's six small data sets.

    Args:
        bases, channels: bases, perhaps shared between layers, and their width.
        transform, bias: whether there is a W, and whether it comes with a bias.
        norm: ``"batch"``, ``"layer"`` or None.
        activation, residual: σ, and whether X is added.
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
        self.norm = norm_module(norm, channels)
        self.activation = activation_module(activation)
        self.residual = residual
        #: Whether it is a linear filter and nothing else.
        self.is_filter = isinstance(bases, LinearBases) and not (
            transform or norm or activation or residual
        )

    def forward(self, x: Tensor, response: Tensor, spectrum: AnySpectrum) -> Tensor:
        filtered = self.bases(x, response, spectrum)
        out: Tensor = self.activation(self.norm(self.transform(filtered)))
        return out + x if self.residual else out
