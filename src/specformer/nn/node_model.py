r"""Specformer for single graphs."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from specformer.nn.argument_checks import check_call, check_node_model
from specformer.nn.conv.composition import convolve, model_convs
from specformer.nn.conv.node_conv import BasesKind
from specformer.nn.filter import DecoderKind
from specformer.nn.layers.batch_norm import Activation, Norm
from specformer.nn.layers.linear import Linear
from specformer.nn.layers.sparse_features import SparseFeatures, linear_after_dropout
from specformer.nn.layers.streams import side_by_side
from specformer.nn.pretrained import given
from specformer.nn.spectral_model import Inspected
from specformer.nn.tokens import tokens_of
from specformer.spectrum import AnySpectrum, Keys

Sharing = Literal["small", "medium", "large"]


class Specformer(Inspected):
    r"""Stacked spectral convolutions whose filters a Transformer reads off the whole spectrum.

    Args:
        in_channels, out_channels: input features, and classes or targets.
        hidden_channels: width d of the feature network and of the Transformer.
        num_layers, num_heads, num_blocks: convolutions, bases M per filter, Transformer depth.
        sharing: ``"small"``: one filter and one set of basis weights for all layers; ``"medium"``:
            one filter, basis weights per layer; ``"large"``: both per layer.
        form: ``"paper"``, or ``"deep"``: :class:`~specformer.nn.conv.composition.ResidualBlock`
            around the same filters, with batch norm unless ``norm`` says otherwise.
        local: whether blocks of the deep form also take a step to the neighbours. Their filters
            start as that step alone, as a GCN's, and learn from there.
        skip: whether they also map their input past the filter.
        linear_last: whether the last of them ends with its filter, without norm, activation and
            dropout, so that outputs are filtered signals.
        space: where convolutions act. ``"output"``: after a two-layer feature network (the paper's
            small graphs); ``"hidden"``: between two linear maps (its large ones); ``"input"``: on
            the features, before the network (:attr:`takes_batches`).
        feature_layers: depth of the feature network outside ``"hidden"`` space; 1 makes it linear.
        second_dropout: ``"inside"`` the feature network or ``"after"`` it, in ``"output"`` space.
        decoder, epsilon, encoding, attention: see :class:`SpectralFilter`.
        bases: ``"linear"`` or ``"ffn"``, see :mod:`specformer.nn.conv.node_conv`.
        transform, norm, activation, residual: see :class:`NodeConv`.
        bias: biases in the feature maps; without them see :meth:`linear_response`.
        transformer_dropout, feature_dropout, propagation_dropout: the paper's three.
        init_std: of linear weights but attention's projections; None for PyTorch's own.

    Shapes: x ``[..., n, in]`` (a tensor or :class:`SparseFeatures`), output ``[..., n, out]``.

    Example:
        >>> import torch, specformer as sf
        >>> spectrum = sf.decompose(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> Specformer(8, 16, 3)(torch.randn(4, 8), spectrum).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        num_heads: int = 4,
        sharing: Sharing = "medium",
        *,
        form: Literal["paper", "deep"] = "paper",
        local: bool = True,
        skip: bool = True,
        linear_last: bool = False,
        num_blocks: int = 1,
        space: Literal["output", "hidden", "input"] = "output",
        feature_layers: Literal[1, 2] = 2,
        second_dropout: Literal["inside", "after"] = "inside",
        decoder: DecoderKind = "joint",
        epsilon: float = 100.0,
        encoding: bool = True,
        attention: bool = True,
        bases: BasesKind = "linear",
        transform: bool = False,
        norm: Norm = None,
        activation: Activation = None,
        residual: bool = False,
        bias: bool = True,
        transformer_dropout: float = 0.1,
        feature_dropout: float = 0.5,
        propagation_dropout: float = 0.2,
        init_std: float | None = None,
    ) -> None:
        super().__init__()
        self.config = given(locals())
        check_node_model(self.config)
        self.space = space = "hidden" if form == "deep" else space
        channels = {"output": out_channels, "hidden": hidden_channels, "input": in_channels}[space]
        self.feature_dropout = nn.Dropout(feature_dropout)
        self.last_dropout = nn.Dropout(0.0 if form == "deep" else feature_dropout)
        self.drops_after = space == "output" and second_dropout == "after"
        self.is_direct = space != "hidden" and feature_layers == 1
        self.lift = Linear(in_channels, out_channels if self.is_direct else hidden_channels, bias)
        last = nn.Identity() if self.is_direct else Linear(hidden_channels, out_channels, bias)
        self.readout = last
        self.filters = self.new_filters()
        self.convs = model_convs(self.config, channels)
        self.draw_normal()

    def forward(
        self, x: Tensor | SparseFeatures, spectrum: AnySpectrum, landmarks: Keys | None = None
    ) -> Tensor:
        """Outputs ``[..., n, out]``; ``landmarks`` as in :meth:`SpectralFilter.decode`."""
        check_call(x, spectrum, landmarks, self.config, self.lift.weight.dtype)
        if self.space == "input" and isinstance(x, Tensor):
            responses = self.responses(spectrum, landmarks)
            return self.mapped(convolve(self.convs, x, responses, spectrum))
        responses, hidden = side_by_side(
            lambda: self.responses(spectrum, landmarks), lambda: self.mapped(x), x.device
        )
        hidden = convolve(self.convs, hidden, responses, spectrum)
        return self.readout(self.last_dropout(hidden)) if self.space == "hidden" else hidden

    def mapped(self, x: Tensor | SparseFeatures) -> Tensor:
        """The feature network; in ``"hidden"`` space its first map alone."""
        hidden = linear_after_dropout(x, self.lift, self.feature_dropout)
        if self.space != "hidden" and not self.is_direct:
            hidden = hidden.relu()
            hidden = self.readout(hidden if self.drops_after else self.feature_dropout(hidden))
        return self.feature_dropout(hidden) if self.drops_after else hidden

    def responses(self, spectrum: AnySpectrum, landmarks: Keys | None = None) -> list[Tensor]:
        """New eigenvalues ``[..., q, heads]`` of every filter: one, or one per layer if "large"."""
        return self.decoded(*tokens_of(spectrum, landmarks))
