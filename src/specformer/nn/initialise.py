r"""First weights of a chosen standard deviation."""

from __future__ import annotations

from torch import nn

from specformer.nn.conv.embedding import FeatureEmbedding
from specformer.nn.filter.attention import PROJECTIONS
from specformer.nn.layers.linear import Linear


def draw_normal(model: nn.Module, std: float | None) -> None:
    """Draw embeddings and linear weights from N(0, ``std``²), biases zero; None changes nothing.

    Projections of attention keep their larger weights: with tiny queries, keys and values filters
    stay constant for hundreds of epochs, and some runs stop there.
    """
    if std is None:
        return
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in PROJECTIONS:
            continue
        if isinstance(module, Linear | FeatureEmbedding):
            module.reset_parameters(std)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
