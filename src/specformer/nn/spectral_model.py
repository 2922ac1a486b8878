r"""What both models share: their filters, several computed as one, and their first weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from specformer.kernels.weighted_attention import FlatSpectra
from specformer.nn.conv.embedding import FeatureEmbedding
from specformer.nn.filter import PROJECTIONS, SpectralFilter
from specformer.nn.layers.linear import Linear, reset_parts
from specformer.nn.pretrained import Pretrained
from specformer.nn.tokens import EigenvalueSet
from specformer.spectrum import Keys


class SpectralModel(Pretrained):
    """Base class of :class:`specformer.Specformer` and :class:`specformer.GraphSpecformer`."""

    filters: nn.ModuleList

    def new_filters(self) -> nn.ModuleList:
        """The filters of a model of these arguments: one or, if sharing is large, one per layer."""
        config = self.config
        return nn.ModuleList(
            SpectralFilter(
                config["hidden_channels"],
                config["num_heads"],
                config["num_blocks"],
                decoder=config["decoder"],
                dropout=config["transformer_dropout"],
                epsilon=config["epsilon"],
                encoding=config["encoding"],
                attention=config["attention"],
            )
            for _ in range(config["num_layers"] if config["sharing"] == "large" else 1)
        )

    def decoded(
        self, tokens: EigenvalueSet, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> list[Tensor]:
        """What every filter decodes, see :meth:`SpectralFilter.decode`."""
        filters = [cast(SpectralFilter, filt) for filt in self.filters]
        if len(filters) > 1 and isinstance(tokens, FlatSpectra):
            return list(decode_together(filters, tokens).unbind(0))
        return [filt.decode(tokens, landmarks, index) for filt in filters]

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does."""
        reset_parts(self)
        self.draw_normal()

    def draw_normal(self) -> None:
        """Draw embeddings and linear weights from N(0, ``init_std``²), biases zero, if it is given.

        Projections of attention keep their larger weights: with tiny queries, keys and values
        filters stay constant for hundreds of epochs, and some runs stop there.
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
                nn.init.zeros_(module.bias)


def decode_together(filters: Sequence[SpectralFilter], tokens: EigenvalueSet) -> Tensor:
    """What filters of one shape make of the same tokens, ``[filters, p, heads]``.

    Their parameters are stacked along a run axis (:mod:`specformer.nn.layers.linear`) in every
    call, which copies them, but runs one chain of kernels instead of one per filter.
    """
    parameters = [dict(filt.named_parameters()) for filt in filters]
    stacked = {
        f"filter.{name}": torch.stack([own[name] for own in parameters]) for name in parameters[0]
    }
    return functional_call(_Decoding(filters[0]), stacked, (tokens,))


class _Decoding(nn.Module):
    """A filter's :meth:`SpectralFilter.decode` as a call."""

    def __init__(self, filt: SpectralFilter) -> None:
        super().__init__()
        self.filter = filt

    def forward(self, tokens: EigenvalueSet) -> Tensor:
        return self.filter.decode(tokens)
