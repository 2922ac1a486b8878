r"""The learnable set-to-set spectral filter: encoder and decoder together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from specformer.errors import ConfigError
from specformer.nn.activation import Activation
from specformer.nn.argument_checks import check_counts, check_rates
from specformer.nn.attention import PackedTokens
from specformer.nn.decoder import DecoderKind, HeadsDecoder, make_decoder
from specformer.nn.encoder import SpectrumEncoder
from specformer.nn.reset import reset_parts
from specformer.spectrum import Keys, Tokens
from specformer.spectrum.distinct import distinct, singly


class SpectralFilter(nn.Module):
    r"""Maps a set of eigenvalues to M sets of new eigenvalues, :math:`[q] \to [q, M]`.

    Args:
        hidden_channels: width d of the Transformer.
        num_heads: M.
        num_blocks: depth of the Transformer.
        decoder: ``"joint"`` or ``"heads"``, see :mod:`specformer.nn.decoder`.
        activation: φ on the new eigenvalues.
        dropout: inside the Transformer.
        epsilon: scale of the eigenvalue encoding.
        encoding: False shows the Transformer the bare eigenvalue, for ablations.
        attention: False makes it a filter of each eigenvalue by itself, for ablations.

    Example:
        >>> import torch
        >>> filt = SpectralFilter(hidden_channels=32, num_heads=4)
        >>> filt(torch.linspace(0, 2, 10)).shape
        torch.Size([10, 4])
    """

    def __init__(
        self,
        hidden_channels: int = 32,
        num_heads: int = 4,
        num_blocks: int = 1,
        *,
        decoder: DecoderKind = "joint",
        activation: Activation = None,
        dropout: float = 0.0,
        epsilon: float = 100.0,
        encoding: bool = True,
        attention: bool = True,
    ) -> None:
        super().__init__()
        check_counts({"num_heads": num_heads}, "num_heads")
        check_rates({"dropout": dropout}, "dropout")
        if decoder == "heads" and not attention:
            raise ConfigError("attention=False needs decoder='joint': heads are attention's.")
        self.hidden_channels = hidden_channels
        self.num_heads = num_heads
        self.encoder = SpectrumEncoder(
            hidden_channels, num_heads, num_blocks, dropout, epsilon, encoding, attention
        )
        self.decoder = make_decoder(decoder, hidden_channels, num_heads, activation)

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does."""
        reset_parts(self)

    def forward(self, eigenvalues: Tensor) -> Tensor:
        """New eigenvalues ``[q, heads]`` for eigenvalues ``[q]`` in any order, repeats and all.

        Gradients flow back to the eigenvalues, to each of equal ones its own.
        """
        if not isinstance(eigenvalues, Tensor):
            kind = type(eigenvalues).__name__
            raise ConfigError(
                f"eigenvalues must be a tensor, such as spectrum.eigenvalues, not a {kind}."
            )
        if eigenvalues.dim() != 1 or len(eigenvalues) == 0:
            shape = list(eigenvalues.shape)
            raise ConfigError(f"eigenvalues must have shape [q], q at least 1, not {shape}.")
        given, own = eigenvalues.dtype, self.encoder.embedding.weight.dtype
        mixed = given.is_floating_point and given != own
        if mixed and not torch.is_autocast_enabled(eigenvalues.device.type):
            raise ConfigError(
                f"eigenvalues are {given}, the filter {own}; bring both to one dtype, each with "
                ".to(dtype=…)."
            )
        if eigenvalues.requires_grad:  # finding equal ones has no gradient
            return self.decode(singly(eigenvalues))
        groups = distinct(eigenvalues)
        return self.decode(groups.tokens, index=groups.index)

    def decode(
        self,
        tokens: Tokens | PackedTokens,
        landmarks: Keys | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """New eigenvalues ``[p, heads]`` of distinct tokens with multiplicities.

        With ``index`` ``[q]``, each eigenvalue's token, those of all eigenvalues, ``[q, heads]``.
        Under dropout equal eigenvalues then differ, as if attention had run over all of them: half
        of a graph's eigenvalues may be equal, and one noise for all would be a large one.

        ``landmarks`` (:meth:`specformer.Spectrum.landmarks`) replace the tokens as attention's
        keys: O(p·b) instead of O(p²), to quadrature accuracy.
        """
        apart = index is not None and self.encoder.is_noisy
        encoded = self.encoder(
            tokens,
            landmarks,
            index if apart else None,
            update_keys=isinstance(self.decoder, HeadsDecoder),
        )
        decoded: Tensor = self.decoder(*encoded)
        return decoded if index is None or apart else decoded.index_select(-2, index)

    def extra_repr(self) -> str:
        return f"{self.hidden_channels}, num_heads={self.num_heads}"


def model_filters(config: Mapping[str, Any]) -> nn.ModuleList:
    """The filters of a model of these arguments: one or, where sharing is large, one a layer."""
    return nn.ModuleList(
        SpectralFilter(
            config["hidden_channels"],
            config["num_heads"],
            config["num_blocks"],
            decoder=config["decoder"],
            activation=config["filter_activation"],
            dropout=config["transformer_dropout"],
            epsilon=config["epsilon"],
            encoding=config["encoding"],
            attention=config["attention"],
        )
        for _ in range(config["num_layers"] if config["sharing"] == "large" else 1)
    )


def decode_together(filters: Sequence[SpectralFilter], tokens: Tokens | PackedTokens) -> Tensor:
    """What filters of one shape make of the same tokens, ``[filters, p, heads]``.

    Their parameters are stacked along a run axis (:mod:`specformer.nn.linear`) in every call: that
    is a copy of them, but one chain of kernels instead of one a filter.

    Example:
        >>> from specformer.spectrum.distinct import distinct
        >>> filters = [SpectralFilter(8, 2) for _ in range(3)]
        >>> decode_together(filters, distinct(torch.linspace(0, 2, 10)).tokens).shape
        torch.Size([3, 10, 2])
    """
    parameters = [dict(filt.named_parameters()) for filt in filters]
    stacked = {
        f"filter.{name}": torch.stack([own[name] for own in parameters]) for name in parameters[0]
    }
    return cast(Tensor, functional_call(_Decoding(filters[0]), stacked, (tokens,)))


class _Decoding(nn.Module):
    """A filter's :meth:`SpectralFilter.decode` as a call."""

    def __init__(self, filt: SpectralFilter) -> None:
        super().__init__()
        self.filter = filt

    def forward(self, tokens: Tokens | PackedTokens) -> Tensor:
        return self.filter.decode(tokens)
