r"""Base classes of both models, and the inspection of their filters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from specformer.errors import ConfigError
from specformer.kernels.weighted_attention import FlatSpectra, apart
from specformer.nn.attention import PROJECTIONS, EigenvalueSet, WeightedAttention
from specformer.nn.conv.embedding import FeatureEmbedding
from specformer.nn.conv.node_conv import LinearBases, NodeConv
from specformer.nn.filter import EncoderBlock, SpectralFilter, SpectrumEncoder
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear, reset_parts
from specformer.nn.pretrained import Pretrained
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
        filters = [cast(SpectralFilter, filt) for filt in self.filters]
        if len(filters) > 1 and isinstance(tokens, FlatSpectra):
            return list(decode_together(filters, tokens).unbind(0))
        return [filt.decode(tokens, landmarks, index) for filt in filters]

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


def decode_together(filters: Sequence[SpectralFilter], tokens: EigenvalueSet) -> Tensor:
    """Decode the same tokens by several filters of one shape, ``[filters, p, heads]``.

    Every call stacks their parameters along a run axis (:mod:`specformer.nn.layers.linear`). This
    copies them, but launches one chain of kernels instead of one per filter.
    """
    parameters = [dict(filt.named_parameters()) for filt in filters]
    stacked = {
        f"filter.{name}": torch.stack([own[name] for own in parameters]) for name in parameters[0]
    }
    return functional_call(_Decoding(filters[0]), stacked, (tokens,))


class _Decoding(nn.Module):
    """A module whose forward pass is :meth:`SpectralFilter.decode`."""

    def __init__(self, filt: SpectralFilter) -> None:
        super().__init__()
        self.filter = filt

    def forward(self, tokens: EigenvalueSet) -> Tensor:
        return self.filter.decode(tokens)


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
        one_filter = all(cast(NodeConv, conv).is_filter for conv in self.convs)
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


#: Upper ends of the paper's low and medium frequency bands; the high band reaches 2.
BAND_EDGES = (2.0 / 3.0, 4.0 / 3.0)
_ROWS = 1024


def condensed_attention(
    encoder: SpectrumEncoder, tokens: Tokens, frequencies: Tensor | None = None
) -> Tensor:
    """The first block's attention between low, medium and high frequencies, ``[heads, 3, 3]``.

    The result has no heads if the encoder has no attention. See :func:`condense` for
    ``frequencies``.
    """
    hidden = encoder.embedding(encoder.encoding(tokens.values))
    first = cast(EncoderBlock, encoder.blocks[0]) if encoder.blocks else None
    if first is None or first.attention is None or first.attention_norm is None:
        return hidden.new_empty(0, 3, 3)
    return condense(first.attention, first.attention_norm(hidden), tokens, frequencies)


def attention_matrix(
    attention: WeightedAttention, tokens: Tensor, keys: Tensor, weights: Tensor
) -> Tensor:
    """The attention matrix ``[..., heads, p, r]``, for inspection only."""
    queries, keyed, _ = apart(attention.project(tokens, keys))
    bias = weights.log().to(queries.dtype)[..., None, None, :]
    return (attention.scale * queries @ keyed.mT + bias).softmax(dim=-1)


def band_of(eigenvalues: Tensor) -> Tensor:
    """0, 1 or 2 for the bands [0, 2/3), [2/3, 4/3) and [4/3, 2]."""
    edges = torch.tensor(BAND_EDGES, dtype=eigenvalues.dtype, device=eigenvalues.device)
    return torch.bucketize(eigenvalues, edges, right=True)


def condense(
    attention: WeightedAttention,
    normed: Tensor,
    tokens: Tokens,
    frequencies: Tensor | None = None,
) -> Tensor:
    r"""The attention matrix summed over three frequency bands (paper, App. "Condensation").

    .. math::
        \hat B_{ij} = \frac{1}{|f_i|}\sum_{\lambda_p \in f_i}\sum_{\lambda_q \in f_j} B_{pq}

    Both sums count multiplicities. A band without eigenvalues has a row of zeros. The matrix is
    computed in blocks of rows. ``frequencies`` are used instead of the tokens' values to assign
    tokens to bands.

    Shapes: ``normed`` ``[p, channels]``, the block's normalised input; output ``[heads, 3, 3]``.
    """
    places = band_of(tokens.values if frequencies is None else frequencies)
    bands = nn.functional.one_hot(places, 3).to(normed.dtype)
    shares = normed.new_zeros(attention.num_heads, 3, 3)
    for start in range(0, len(tokens.values), _ROWS):
        rows = slice(start, start + _ROWS)
        matrix = attention_matrix(attention, normed[rows], normed, tokens.weights)
        block = matrix @ bands  # [heads, rows, 3]
        shares += (bands[rows] * tokens.weights[rows, None]).mT @ block
    mass = (bands * tokens.weights[:, None]).sum(dim=0)
    # The weights of a density are not whole numbers, so that a band may have a mass below 1.
    return shares / mass.masked_fill(mass == 0, 1.0)[:, None]
