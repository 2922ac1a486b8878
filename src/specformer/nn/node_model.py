r"""Specformer for single graphs: node classification, node regression, filter learning."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.activation import ACTIVATIONS, Activation
from specformer.nn.argument_checks import (
    check_choices,
    check_counts,
    check_flags,
    check_rates,
    check_std,
)
from specformer.nn.attention import PROJECTIONS
from specformer.nn.bases import BasesKind, LinearBases, make_bases
from specformer.nn.decoder import DecoderKind
from specformer.nn.filter import SpectralFilter, model_filters
from specformer.nn.fork import forked
from specformer.nn.linear import Linear
from specformer.nn.node_conv import Norm, SpectralConv
from specformer.nn.pretrained import Pretrained, given
from specformer.nn.reset import reset_parts
from specformer.nn.sparse_features import SparseFeatures
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Spectrum, Tokens
from specformer.spectrum.distinct import singly

Sharing = Literal["small", "medium", "large"]
Space = Literal["output", "hidden", "input"]


class Specformer(Pretrained):
    r"""Stacked spectral convolutions whose filters a Transformer reads off the whole spectrum.

    Args:
        in_channels: input features.
        hidden_channels: width d of the feature network and of the Transformer.
        out_channels: classes or targets.
        num_layers: convolutions.
        num_heads: bases M a filter.
        sharing: ``"small"``: one filter, one set of basis weights for all layers; ``"medium"``: one
            filter, basis weights a layer; ``"large"``: both a layer.
        num_blocks: Transformer depth.
        space: ``"output"``: a two-layer feature network maps to the outputs and the convolutions
            act there (the paper's small data sets); ``"hidden"``: a linear map to
            ``hidden_channels``, the convolutions, a linear map to the outputs (its large ones);
            ``"input"``: the convolutions act on the features, then the two-layer network maps to
            the outputs. With one filter of the features, nodes can be taken in batches
            (:attr:`takes_batches`).
        feature_layers: depth of the feature network outside ``"hidden"`` space; 1 makes it linear.
        second_dropout: where ``feature_dropout`` acts a second time in ``"output"`` space:
            ``"inside"`` the feature network, between its layers, or ``"after"`` it.
        decoder, filter_activation, epsilon, encoding, attention: see :class:`SpectralFilter`.
        bases: ``"linear"`` or ``"ffn"``, see :mod:`specformer.nn.bases`.
        transform, norm, activation, residual: see :class:`SpectralConv`.
        bias: biases in the feature maps. Without them, and without norm and activation,
            ``space="hidden"`` is a linear filter of its input (:meth:`linear_response`).
        transformer_dropout, feature_dropout, propagation_dropout: the paper's three.
        init_std: standard deviation of all linear weights but attention's projections, biases
            zero; None for PyTorch's own.

    Shapes: x ``[n, in]`` (a tensor or :class:`SparseFeatures`) or, with stacked parameters,
    ``[runs, n, in]``; output ``[..., n, out]``.

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
        num_blocks: int = 1,
        space: Space = "output",
        feature_layers: Literal[1, 2] = 2,
        second_dropout: Literal["inside", "after"] = "inside",
        decoder: DecoderKind = "joint",
        filter_activation: Activation = None,
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
        _check(self.config)
        widths = {"output": out_channels, "hidden": hidden_channels, "input": in_channels}
        channels = widths[space]
        self.space = space
        self.feature_dropout = nn.Dropout(feature_dropout)
        self.drops_after = space == "output" and second_dropout == "after"
        self.is_direct = space != "hidden" and feature_layers == 1
        self.lift = Linear(in_channels, out_channels if self.is_direct else hidden_channels, bias)
        self.readout = (
            nn.Identity() if self.is_direct else Linear(hidden_channels, out_channels, bias)
        )
        self.filters = model_filters(self.config)
        shared = make_bases(bases, num_heads, channels, propagation_dropout)
        self.convs = nn.ModuleList(
            SpectralConv(
                shared
                if sharing == "small"
                else make_bases(bases, num_heads, channels, propagation_dropout),
                channels,
                transform=transform,
                norm=norm,
                activation=activation,
                residual=residual,
                bias=bias,
            )
            for _ in range(num_layers)
        )
        #: Whether the model is a linear filter of its input, see :meth:`linear_response`.
        self.is_linear_filter = (
            space == "hidden" and bases == "linear" and not (activation or norm or bias)
        )
        self._draw_linear()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does."""
        reset_parts(self)
        self._draw_linear()

    def _draw_linear(self) -> None:
        """Draw linear weights with ``init_std``, if there is one."""
        if self.config["init_std"] is None:
            return
        for name, module in self.named_modules():
            # Projections of attention keep their larger weights: with tiny queries, keys and
            # values filters stay constant for hundreds of epochs, and some runs stop there.
            if isinstance(module, Linear) and name.rpartition(".")[2] not in PROJECTIONS:
                module.reset_parameters(self.config["init_std"])

    def forward(
        self, x: Tensor | SparseFeatures, spectrum: AnySpectrum, landmarks: Keys | None = None
    ) -> Tensor:
        """Outputs ``[..., n, out]``; ``landmarks`` as in :meth:`SpectralFilter.decode`."""
        self._check_call(x, spectrum, landmarks)
        if self.space == "input":
            if isinstance(x, SparseFeatures):
                raise ConfigError("space='input' filters the features: give them as a tensor.")
            return self._mapped(self._convolved(x, self.responses(spectrum, landmarks), spectrum))
        responses, mapped = forked(
            lambda: self.responses(spectrum, landmarks), lambda: self._mapped(x), x.device
        )
        hidden = self._convolved(mapped, responses, spectrum)
        if self.space == "hidden":
            hidden = self.readout(self.feature_dropout(hidden))
        return hidden

    def _check_call(self, x: Any, spectrum: Any, landmarks: Any) -> None:
        """Refuse what would fail in the middle of a product, by shapes and types alone."""
        if not isinstance(spectrum, Spectrum | ImplicitSpectrum):
            given = type(spectrum).__name__
            raise ConfigError(
                f"spectrum must come from sf.decompose or sf.approximate, not be a {given}."
            )
        if landmarks is not None and not isinstance(landmarks, Keys):
            given = type(landmarks).__name__
            raise ConfigError(f"landmarks must come from spectrum.landmarks(…), not be a {given}.")
        if isinstance(x, SparseFeatures):
            shape = [x.num_nodes, x.in_channels]
        elif isinstance(x, Tensor) and x.layout == torch.strided:
            shape = list(x.shape)
        else:
            given = f"tensor of layout {x.layout}" if isinstance(x, Tensor) else type(x).__name__
            raise ConfigError(
                f"x must be a dense tensor or SparseFeatures.from_scipy(…), not a {given}."
            )
        wanted = [spectrum.num_nodes, self.config["in_channels"]]
        if shape[-2:] != wanted:
            raise ConfigError(
                f"x has shape {shape}, but the spectrum has {wanted[0]} nodes and the model "
                f"in_channels={wanted[1]}."
            )
        types = (x.dtype, self.lift.weight.dtype, spectrum.dtype)
        if len(set(types)) > 1 and not torch.is_autocast_enabled(x.device.type):
            raise ConfigError(
                "x is {}, the model {} and the spectrum {}; bring all to one dtype, each with "
                ".to(dtype=…).".format(*types)
            )

    def _mapped(self, x: Tensor | SparseFeatures) -> Tensor:
        """The feature network; in ``"hidden"`` space its first map alone."""
        if isinstance(x, SparseFeatures):
            dropout = self.feature_dropout.p if self.training else 0.0
            hidden = x.linear(self.lift.weight, self.lift.bias, dropout)
        else:
            hidden = self.lift(self.feature_dropout(x))
        if self.space != "hidden" and not self.is_direct:
            hidden = hidden.relu()
            hidden = self.readout(hidden if self.drops_after else self.feature_dropout(hidden))
        return self.feature_dropout(hidden) if self.drops_after else hidden

    def _convolved(self, hidden: Tensor, responses: list[Tensor], spectrum: AnySpectrum) -> Tensor:
        convs = [cast(SpectralConv, conv) for conv in self.convs]
        each = [responses[min(layer, len(responses) - 1)] for layer in range(len(convs))]
        # The interpolant of a product is not quite the product of interpolants: where dropout makes
        # training go through such filters one by one, evaluation does so too.
        apart = self.training or isinstance(spectrum, ImplicitSpectrum)
        noisy = apart and self.config["propagation_dropout"] > 0
        if noisy or not all(conv.is_filter for conv in convs):
            for conv, response in zip(convs, each, strict=True):
                hidden = conv(hidden, response, spectrum)
            return hidden
        # Filters one after another are one: h ↦ a h + U diag(g) Uᵀ h, with two products in all.
        every = [cast(LinearBases, conv.bases) for conv in convs]
        identity, gains = every[0].identity, every[0].gains(each[0])
        for own, response in zip(every[1:], each[1:], strict=True):
            gains = torch.addcmul(own.identity * gains, own.gains(response), identity + gains)
            identity = identity * own.identity
        return torch.addcmul(spectrum.filter(hidden, gains), identity, hidden)

    @property
    def takes_batches(self) -> bool:
        """Whether a node's output depends on the others through one filter of the input alone.

        Such a model takes nodes in batches of their T_k(L − I) x
        (:class:`specformer.spectrum.polynomial.ChebyshevRows`).
        """
        if self.space != "input" or self.config["bases"] != "linear":
            return False
        one_filter = all(cast(SpectralConv, conv).is_filter for conv in self.convs)
        return len(self.convs) == 1 or (one_filter and not self.config["propagation_dropout"])

    def filter_parameters(self) -> list[nn.Parameter]:
        """The parameters of filters and bases: all but those of the feature maps."""
        bases = [cast(SpectralConv, conv).bases for conv in self.convs]
        return list(nn.ModuleList([*self.filters, *bases]).parameters())

    def responses(self, spectrum: AnySpectrum, landmarks: Keys | None = None) -> list[Tensor]:
        """New eigenvalues ``[..., q, heads]`` of every filter: one, or one a layer if "large".

        Without a decomposition, responses at the interpolation's points, ``[..., K + 1, heads]``.
        Gradients flow back to eigenvalues that ask for one, to each of equal ones its own;
        attention is then computed at all of them, whatever points landmarks have.
        """
        if isinstance(spectrum, ImplicitSpectrum):
            return self._decoded(spectrum.points, landmarks or spectrum.tokens)
        if spectrum.eigenvalues.requires_grad:
            # Finding equal ones has no gradient, nor has interpolation, whose matrix is fixed.
            keys = landmarks and Tokens(landmarks.values, landmarks.weights)
            return self._decoded(singly(spectrum.eigenvalues), keys)
        return self._decoded(spectrum.distinct.tokens, landmarks, spectrum.distinct.index)

    def _decoded(
        self, tokens: Tokens, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> list[Tensor]:
        return [
            cast(SpectralFilter, filt).decode(tokens, landmarks, index) for filt in self.filters
        ]

    @torch.no_grad()
    def interpolation_error(self, spectrum: ImplicitSpectrum) -> float:
        r"""How far interpolated responses p are from the filters' own g, at the worst head.

        .. math::
            \Big( \sum_i \omega_i\,(p(\theta_i) - g(\theta_i))^2 \Big/
            \sum_i \omega_i\, g(\theta_i)^2 \Big)^{1/2}

        over the density's points: the relative error that white noise suffers when filtered. For
        models in evaluation mode.
        """
        values, weights = spectrum.tokens.values, spectrum.tokens.weights.unsqueeze(-1)
        worst = 0.0
        exact = self._decoded(spectrum.tokens)
        for own, at_points in zip(exact, self.responses(spectrum), strict=True):
            error = (weights * (spectrum.interpolate(at_points, values) - own) ** 2).sum(dim=-2)
            size = (weights * own**2).sum(dim=-2).clamp_min(torch.finfo(own.dtype).tiny)
            worst = max(worst, float((error / size).max()) ** 0.5)
        return worst

    def linear_response(self, tokens: Tokens, landmarks: Keys | None = None) -> Tensor:
        r"""The gains ``[..., p, in, out]`` at distinct eigenvalues, if the model is linear in x.

        Over a complete spectrum :math:`\mathrm{model}(x) = U\,H(\lambda)\,U^\top x`; over a
        truncated one the identity among the bases acts on the rest of the signal too.
        """
        if not self.is_linear_filter:
            raise ConfigError(
                "linear_response needs space='hidden', bases='linear', bias=False, and neither "
                "norm nor activation."
            )
        gains = self.lift.weight.mT.unsqueeze(-3)  # [..., 1, in, hidden]
        decoded = self._decoded(tokens, landmarks)
        for layer, conv in enumerate(self.convs):
            bases = conv.bases
            assert isinstance(bases, LinearBases)
            combined = bases.weight[..., :1, :] + bases.gains(decoded[min(layer, len(decoded) - 1)])
            out = gains * combined.unsqueeze(-2)
            if isinstance(conv.transform, Linear):
                out = out @ conv.transform.weight.mT.unsqueeze(-3)
            gains = out + gains if conv.residual else out
        return gains @ cast(Linear, self.readout).weight.mT.unsqueeze(-3)

    def condensed_attention(self, spectrum: AnySpectrum) -> Tensor:
        """Attention between low, medium and high frequencies, ``[filters, heads, 3, 3]``."""
        if isinstance(spectrum, ImplicitSpectrum):
            tokens = spectrum.tokens
        else:
            tokens = spectrum.distinct.tokens
        encoders = [cast(SpectralFilter, filt).encoder for filt in self.filters]
        return torch.stack([encoder.condensed_attention(tokens) for encoder in encoders])


def _check(config: dict[str, Any]) -> None:
    """Refuse what no other module would."""
    check_choices(
        config,
        sharing=("small", "medium", "large"),
        space=("output", "hidden", "input"),
        feature_layers=(1, 2),
        second_dropout=("inside", "after"),
        filter_activation=ACTIVATIONS,
    )
    counts = ("in_channels", "hidden_channels", "out_channels", "num_layers", "num_heads")
    check_counts(config, *counts)
    check_flags(config, "encoding", "attention", "transform", "residual", "bias")
    check_rates(config, "transformer_dropout", "feature_dropout", "propagation_dropout")
    check_std(config)
