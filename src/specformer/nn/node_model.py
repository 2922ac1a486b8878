r"""Specformer for the nodes of a single graph."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor, nn

from specformer.nn.argument_checks import check_arguments, check_call, refuse_idle
from specformer.nn.conv.composition import build_convs, steps
from specformer.nn.conv.node_conv import BasesKind
from specformer.nn.filter import DecoderKind
from specformer.nn.layers.batch_norm import Activation, Norm
from specformer.nn.layers.linear import Linear
from specformer.nn.layers.sparse_features import SparseFeatures, linear_after_dropout
from specformer.nn.layers.streams import side_by_side
from specformer.nn.pretrained import constructor_arguments
from specformer.nn.spectral_model import NodeSpectralModel
from specformer.nn.tokens import tokens_of
from specformer.spectrum import AnySpectrum, Keys

Sharing = Literal["small", "medium", "large"]


class Specformer(NodeSpectralModel):
    r"""Specformer for node classification and regression: one output row per node.

    Spectral convolutions, whose filters a Transformer computes from the whole spectrum.

    Args:
        in_channels: number of input features.
        hidden_channels: width d of the feature network and of the Transformer.
        out_channels: number of classes or targets.
        num_layers: number of convolutions.
        num_heads: number M of attention heads and bases per filter.
        sharing: ``"small"``: all layers share one filter and one set of basis weights;
            ``"medium"``: one filter, but basis weights per layer; ``"large"``: both per layer.
        form: ``"paper"``: the paper's model; ``"deep"``: residual blocks around the same filters
            (:class:`~specformer.nn.conv.composition.ResidualBlock`), with batch norm by default.
        local: deep form: add a step to the neighbours as a basis. Filters start as that step alone,
            like a GCN's.
        skip: deep form: add a linear map of each block's input to the filtered signal.
        linear_last: deep form: no norm, activation and dropout in the last block, so that outputs
            are filtered signals.
        num_blocks: depth of the Transformer.
        space: where the convolutions act. ``"output"``: after a two-layer feature network (the
            paper's small graphs); ``"hidden"``: between two linear maps (its large graphs);
            ``"input"``: on the features, before the network (see :attr:`takes_batches`).
        feature_layers: depth of the feature network, 1 or 2; not used in ``"hidden"`` space.
        second_dropout: dropout ``"inside"`` the feature network or ``"after"`` it, in ``"output"``
            space.
        decoder, epsilon, encoding, attention: see :class:`SpectralFilter`.
        bases: ``"linear"``: one weight per basis and channel, as in the authors' code; ``"ffn"``:
            the paper's network on the entries of the bases, for small graphs.
        transform: add a linear map to each convolution.
        norm: normalisation of each convolution: ``"batch"``, ``"layer"`` or None.
        activation: activation of each convolution: ``"relu"``, ``"gelu"``, ``"tanh"`` or None.
        residual: add the input of each convolution to its output.
        bias: biases in the feature network; False is needed for :meth:`linear_response`.
        transformer_dropout: dropout rate in the filters.
        feature_dropout: dropout rate in the feature network.
        propagation_dropout: dropout rate on filtered signals.
        init_std: standard deviation of initial linear weights, except those of attention; None for
            PyTorch's initialisation.

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
        self.config = constructor_arguments(locals())
        check_arguments(Specformer, self.config, num_blocks=0)
        refuse_idle(self.config)
        self.space = space = "hidden" if form == "deep" else space
        channels = {"output": out_channels, "hidden": hidden_channels, "input": in_channels}[space]
        self.feature_dropout = nn.Dropout(feature_dropout)
        self.last_dropout = nn.Dropout(0.0 if form == "deep" else feature_dropout)
        self.drops_after = space == "output" and second_dropout == "after"
        self.is_direct = space != "hidden" and feature_layers == 1
        self.lift = Linear(in_channels, out_channels if self.is_direct else hidden_channels, bias)
        width = hidden_channels
        self.readout = nn.Identity() if self.is_direct else Linear(width, out_channels, bias)
        self.filters = self.new_filters()  # one per layer if "large", else one
        self.convs = build_convs(self.config, channels)  # they share their bases if "small"
        self.apply_init_std()

    def forward(
        self, x: Tensor | SparseFeatures, spectrum: AnySpectrum, landmarks: Keys | None = None
    ) -> Tensor:
        """Outputs ``[..., n, out]``; see :meth:`SpectralFilter.decode` for ``landmarks``."""
        width, dtype = self.config["in_channels"], self.lift.weight.dtype
        check_call(x, spectrum, width, dtype, landmarks, sparse=self.space != "input")
        responses, hidden = side_by_side(
            lambda: self.responses(spectrum, landmarks), lambda: self.before(x), x.device
        )
        for conv, response in steps(self.convs, responses, spectrum):
            hidden = conv(hidden, response, spectrum)
        return self.after(hidden)

    def before(self, x: Tensor | SparseFeatures) -> Tensor:
        """What the convolutions act on: x itself in ``"input"`` space, else mapped features."""
        return cast(Tensor, x) if self.space == "input" else self.mapped(x)

    def after(self, hidden: Tensor) -> Tensor:
        """The output of the model for the output of the last convolution."""
        if self.space == "input":
            return self.mapped(hidden)
        return self.readout(self.last_dropout(hidden)) if self.space == "hidden" else hidden

    def mapped(self, x: Tensor | SparseFeatures) -> Tensor:
        """Apply the feature network; in ``"hidden"`` space only its first map."""
        hidden = linear_after_dropout(x, self.lift, self.feature_dropout)
        if self.space != "hidden" and not self.is_direct:
            hidden = hidden.relu()
            hidden = self.readout(hidden if self.drops_after else self.feature_dropout(hidden))
        return self.feature_dropout(hidden) if self.drops_after else hidden

    def responses(self, spectrum: AnySpectrum, landmarks: Keys | None = None) -> list[Tensor]:
        """New eigenvalues ``[..., q, heads]`` of every filter: one, or one per layer if "large"."""
        return self.decoded(*tokens_of(spectrum, landmarks))
