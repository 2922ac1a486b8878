r"""Base classes of both models: what they have beside their forward passes."""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.condensation import condensed_attention
from specformer.nn.conv.composition import is_filter
from specformer.nn.conv.embedding import FeatureEmbedding
from specformer.nn.conv.node_conv import LinearBases, NodeConv
from specformer.nn.filter import SpectralFilter
from specformer.nn.layers.attention import PROJECTIONS
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear, reset_parts
from specformer.nn.pretrained import Pretrained
from specformer.nn.tokens import EigenvalueSet
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Tokens


class SpectralModel(Pretrained):
    """Base class of :class:`specformer.Specformer` and :class:`specformer.GraphSpecformer`."""

    filters: nn.ModuleList

    def new_filters(self) -> nn.ModuleList:
        """Build the filters: one, or one per layer with large sharing."""
        config = self.config
        sizes = [config[name] for name in ("hidden_channels", "num_heads", "num_blocks")]
        options = {name: config[name] for name in ("decoder", "epsilon", "encoding", "attention")}
        return nn.ModuleList(
            SpectralFilter(*sizes, dropout=config["transformer_dropout"], **options)
            for _ in range(config["num_layers"] if config["sharing"] == "large" else 1)
        )

    def decoded(
        self, tokens: EigenvalueSet, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> list[Tensor]:
        """The result of :meth:`SpectralFilter.decode` for every filter."""
        return [filt(tokens, landmarks, index) for filt in self.filters]

    def reset_parameters(self) -> None:
        """Initialise all parameters again, as the constructor does."""
        reset_parts(self)
        self.apply_init_std()

    def apply_init_std(self) -> None:
        """Draw embeddings and linear weights from N(0, ``init_std``²), if ``init_std`` is given.

        The projections of attention keep their larger weights. With tiny queries, keys and values,
        filters stay constant for hundreds of epochs, and some runs stop before they change.
        """
        std = self.config["init_std"]
        if std is None:
            return
        for name, module in self.named_modules():
            if name.rpartition(".")[2] in PROJECTIONS:
                continue
            if isinstance(module, Linear | FeatureEmbedding):
                module.reset_parameters(std)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class NodeSpectralModel(SpectralModel):
    """Base class of :class:`specformer.Specformer`: properties and inspection of filters."""

    convs: nn.ModuleList
    lift: Linear
    readout: nn.Module

    @abstractmethod
    def responses(self, spectrum: AnySpectrum, landmarks: Keys | None = None) -> list[Tensor]:
        """New eigenvalues ``[..., q, heads]`` of every filter."""

    @property
    def is_linear_filter(self) -> bool:
        """Whether the model is a linear filter of its input; see :meth:`linear_response`."""
        options = self.config
        linear = options["space"] == "hidden" and options["bases"] == "linear"
        return linear and not (options["activation"] or options["norm"] or options["bias"])

    @property
    def takes_batches(self) -> bool:
        """Whether the model can be trained on batches of nodes.

        It can if nodes only interact through one filter of the input. A batch then holds the terms
        T_k(L − I) x of its nodes (:class:`specformer.spectrum.implicit.polynomial.ChebyshevRows`).
        """
        if self.config["space"] != "input" or self.config["bases"] != "linear":
            return False
        one_filter = all(is_filter(conv) for conv in self.convs)
        return len(self.convs) == 1 or (one_filter and not self.config["propagation_dropout"])

    def filter_parameters(self) -> list[nn.Parameter]:
        """The parameters of filters and bases, without those of the feature network."""
        bases = [cast(NodeConv, conv).bases for conv in self.convs]
        return list(nn.ModuleList([*self.filters, *bases]).parameters())

    def idle_parameters(self) -> list[nn.Parameter]:
        """Biases that have no effect because a batch norm follows.

        Their gradients are rounding errors, which Adam would turn into full steps. In evaluation
        these biases would matter, so results would differ between machines and process counts.
        """
        normed = [conv for conv in self.convs if isinstance(conv.norm, BatchNorm)]
        maps = [getattr(conv, name, None) for conv in normed for name in ("skip", "transform")]
        biases = [getattr(each, "bias", None) for each in maps]
        return [bias for bias in biases if isinstance(bias, nn.Parameter)]

    @torch.no_grad()
    def interpolation_error(self, spectrum: ImplicitSpectrum) -> float:
        r"""Relative error of the interpolated responses p of the exact responses g, worst head.

        .. math::
            \Big( \sum_i \omega_i\,(p(\theta_i) - g(\theta_i))^2 \Big/
            \sum_i \omega_i\, g(\theta_i)^2 \Big)^{1/2}

        The sum is over the points of the spectral density. This is the relative error of filtered
        white noise. The model must be in evaluation mode.
        """
        values, weights = spectrum.tokens.values, spectrum.tokens.weights.unsqueeze(-1)
        worst = 0.0
        exact = self.decoded(spectrum.tokens)
        for own, at_points in zip(exact, self.responses(spectrum), strict=True):
            error = (weights * (spectrum.interpolate(at_points, values) - own) ** 2).sum(dim=-2)
            size = (weights * own**2).sum(dim=-2).clamp_min(torch.finfo(own.dtype).tiny)
            worst = max(worst, float((error / size).max()) ** 0.5)
        return worst

    def linear_response(self, tokens: Tokens, landmarks: Keys | None = None) -> Tensor:
        r"""The gains ``[..., p, in, out]`` at distinct eigenvalues of a model that is linear in x.

        With a complete spectrum, :math:`\mathrm{model}(x) = U\,H(\lambda)\,U^\top x`. With a
        truncated one, the identity among the bases also acts on the rest of the signal.
        """
        if not self.is_linear_filter:
            raise ConfigError(
                "linear_response needs space='hidden', bases='linear', bias=False, and neither "
                "norm nor activation."
            )
        gains = self.lift.weight.mT.unsqueeze(-3)  # [..., 1, in, hidden]
        decoded = self.decoded(tokens, landmarks)
        for layer, conv in enumerate(self.convs):
            bases = cast(LinearBases, conv.bases)
            response = decoded[min(layer, len(decoded) - 1)]
            out = gains * (bases.identity + bases.gains(response)).unsqueeze(-2)
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
        return torch.stack([condensed_attention(encoder, tokens) for encoder in encoders])
