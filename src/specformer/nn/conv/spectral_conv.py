r"""The spectral convolution as a layer for your own models."""

from __future__ import annotations

from torch import Tensor

from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_arguments, check_call
from specformer.nn.conv.node_conv import LinearBases
from specformer.nn.filter import SpectralFilter
from specformer.nn.layers.batch_norm import Activation, Norm, activation_module, norm_module
from specformer.nn.layers.linear import Linear, Resettable
from specformer.nn.tokens import tokens_of
from specformer.spectrum import AnySpectrum


class SpectralConv(Resettable):
    r"""Spectral convolution whose filters a Transformer computes from the whole spectrum.

    .. math::
        X' = \sigma\big(\mathrm{norm}(\hat X W + b)\big), \qquad
        \hat x_c = w_{0c}\, x_c + \sum_m w_{mc}\, U\,\mathrm{diag}(\lambda_m)\,U^\top x_c

    Args:
        in_channels: width of X.
        out_channels: width of X'.
        num_heads: number M of bases; by default that of ``filter``, or 4.
        filter: computes the new eigenvalues λ. Several layers may share one. By default the layer
            has its own, ``SpectralFilter(hidden_channels, num_heads)``.
        hidden_channels: width of the layer's own filter, by default 32.
        dropout: dropout rate on the filtered signals, one per basis.
        norm: normalisation: ``"batch"``, ``"layer"`` or None.
        activation: activation σ: ``"relu"``, ``"gelu"``, ``"tanh"`` or None.
        residual: whether X is added to X'.
        bias: whether the linear map has a bias b.

    Shapes: x ``[..., n, in_channels]``, output ``[..., n, out_channels]``.

    Example:
        >>> import torch, specformer as sf
        >>> spectrum = sf.decompose(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> conv = SpectralConv(16, 2)
        >>> conv(torch.randn(4, 16), spectrum).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_heads: int | None = None,
        *,
        filter: SpectralFilter | None = None,
        hidden_channels: int | None = None,
        dropout: float = 0.0,
        norm: Norm = None,
        activation: Activation = None,
        residual: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_arguments(SpectralConv, locals())
        if residual and in_channels != out_channels:
            raise ConfigError(
                f"residual=True needs equal widths, not in_channels={in_channels} and "
                f"out_channels={out_channels}."
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.filter = _filter(filter, num_heads, hidden_channels)
        self.bases = LinearBases(self.filter.num_heads, in_channels, dropout)
        self.lin = Linear(in_channels, out_channels, bias)
        self.norm = norm_module(norm, out_channels)
        self.activation = activation_module(activation)
        self.residual = residual

    def forward(self, x: Tensor, spectrum: AnySpectrum) -> Tensor:
        check_call(x, spectrum, self.in_channels, self.lin.weight.dtype)
        response = self.filter(*tokens_of(spectrum, None))
        out = self.activation(self.norm(self.lin(self.bases(x, response, spectrum))))
        return out + x if self.residual else out

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"


def _filter(
    given: SpectralFilter | None, num_heads: int | None, hidden_channels: int | None
) -> SpectralFilter:
    """The given filter, if the other arguments agree with it, or else a new one."""
    if given is None:
        return SpectralFilter(hidden_channels or 32, 4 if num_heads is None else num_heads)
    if not isinstance(given, SpectralFilter):
        raise ConfigError(f"filter must be a SpectralFilter, not a {type(given).__name__}.")
    for name, asked in (("num_heads", num_heads), ("hidden_channels", hidden_channels)):
        if asked not in (None, getattr(given, name)):
            raise ConfigError(
                f"the filter has {name}={getattr(given, name)}, not {asked}; leave {name} out."
            )
    return given
