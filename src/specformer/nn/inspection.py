r"""What a node model can tell about its filters: responses, attention, errors, parameters."""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn.conv.bases import LinearBases
from specformer.nn.conv.node_conv import NodeConv
from specformer.nn.filter import SpectralFilter
from specformer.nn.filter.condensation import condensed_attention
from specformer.nn.initialise import draw_normal
from specformer.nn.layers.linear import Linear
from specformer.nn.layers.reset import reset_parts
from specformer.nn.pretrained import Pretrained
from specformer.spectrum import AnySpectrum, ImplicitSpectrum, Keys, Tokens


class Inspected(Pretrained):
    """Base class of :class:`specformer.Specformer`: everything but building and calling it."""

    filters: nn.ModuleList
    convs: nn.ModuleList
    lift: Linear
    readout: nn.Module

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does."""
        reset_parts(self)
        draw_normal(self, self.config["init_std"])

    @abstractmethod
    def responses(self, spectrum: AnySpectrum, landmarks: Keys | None = None) -> list[Tensor]:
        """New eigenvalues ``[..., q, heads]`` of every filter."""

    @property
    def is_linear_filter(self) -> bool:
        """Whether the model is a linear filter of its input, see :meth:`linear_response`."""
        options = self.config
        linear = options["space"] == "hidden" and options["bases"] == "linear"
        return linear and not (options["activation"] or options["norm"] or options["bias"])

    @property
    def takes_batches(self) -> bool:
        """Whether a node's output depends on the others through one filter of the input alone.

        Such a model takes nodes in batches of their T_k(L − I) x
        (:class:`specformer.spectrum.polynomial.ChebyshevRows`).
        """
        if self.config["space"] != "input" or self.config["bases"] != "linear":
            return False
        one_filter = all(cast(NodeConv, conv).is_filter for conv in self.convs)
        return len(self.convs) == 1 or (one_filter and not self.config["propagation_dropout"])

    def filter_parameters(self) -> list[nn.Parameter]:
        """The parameters of filters and bases: all but those of the feature maps."""
        bases = [cast(NodeConv, conv).bases for conv in self.convs]
        return list(nn.ModuleList([*self.filters, *bases]).parameters())

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

    def _decoded(
        self, tokens: Tokens, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> list[Tensor]:
        """What every filter decodes, see :meth:`SpectralFilter.decode`."""
        filters = [cast(SpectralFilter, filt) for filt in self.filters]
        return [filt.decode(tokens, landmarks, index) for filt in filters]
