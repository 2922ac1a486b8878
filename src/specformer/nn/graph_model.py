r"""Specformer for many small graphs with features of nodes and bonds: molecules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.nn.activation import ACTIVATIONS, Activation
from specformer.nn.argument_checks import (
    check_choices,
    check_counts,
    check_flags,
    check_rates,
    check_std,
)
from specformer.nn.attention import PROJECTIONS, PackedTokens
from specformer.nn.decoder import DecoderKind
from specformer.nn.embedding import FeatureEmbedding, NodeEmbedding, checked_cardinalities
from specformer.nn.filter import SpectralFilter, decode_together, model_filters
from specformer.nn.graph_bases import BasesNorm, GraphBases, Layout, Normalisation, basis_entries
from specformer.nn.graph_conv import GraphConv
from specformer.nn.linear import Linear
from specformer.nn.node_model import Sharing
from specformer.nn.pooling import POOLINGS, Pooling, pool
from specformer.nn.pretrained import Pretrained, given
from specformer.nn.reset import reset_parts
from specformer.spectrum import Tokens
from specformer.spectrum.many.packed_graphs import PackedGraphs, check_packed


class GraphSpecformer(Pretrained):
    r"""Embedded atoms and bonds, spectral convolutions, pooling, and one output row a graph.

    Args:
        node_cardinalities: how many values each integer column of the nodes may take.
        edge_cardinalities: the same of the bonds; "no bond" is one more value of every column.
        hidden_channels: width d of everything.
        out_channels: targets, classes or tasks.
        num_layers: convolutions.
        num_heads: bases M a filter.
        sharing: ``"small"``: one filter and one network over the bases for all layers;
            ``"medium"``: one filter, a network a layer; ``"large"``: both a layer.
        pooling: ``"mean"``, ``"sum"`` or ``"max"`` over a graph's nodes.
        num_blocks: Transformer depth.
        decoder, filter_activation, epsilon, encoding, attention: see :class:`SpectralFilter`.
        bases_norm, bases_activation, normalise_bases: see :class:`GraphBases`.
        transformer_dropout, feature_dropout, propagation_dropout: the paper's three, in the
            filters, in the convolutions (:class:`GraphConv`) and on the bases.
        in_channels: numbers a node has beside its categories.
        init_std: standard deviation of all embeddings and of all linear weights but attention's
            projections, biases zero; None for PyTorch's own.

    Shapes: a batch of B graphs; output ``[B, out_channels]``.

    Example:
        >>> model = GraphSpecformer([28], [4], hidden_channels=16, out_channels=1, num_heads=2)
        >>> sum(parameter.numel() for parameter in model.parameters())
        6419
    """

    def __init__(
        self,
        node_cardinalities: Sequence[int],
        edge_cardinalities: Sequence[int],
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 4,
        num_heads: int = 8,
        sharing: Sharing = "small",
        *,
        pooling: Pooling = "mean",
        num_blocks: int = 1,
        decoder: DecoderKind = "joint",
        filter_activation: Activation = None,
        epsilon: float = 100.0,
        encoding: bool = True,
        attention: bool = True,
        bases_norm: BasesNorm = None,
        bases_activation: Activation = None,
        normalise_bases: Normalisation = None,
        transformer_dropout: float = 0.0,
        feature_dropout: float = 0.0,
        propagation_dropout: float = 0.0,
        in_channels: int = 0,
        init_std: float | None = None,
    ) -> None:
        super().__init__()
        node_cardinalities = checked_cardinalities("node_cardinalities", node_cardinalities)
        edge_cardinalities = checked_cardinalities("edge_cardinalities", edge_cardinalities)
        self.config = given(locals())
        _check(self.config)
        self.pooling = pooling
        self.atoms = NodeEmbedding(node_cardinalities, hidden_channels, in_channels)
        self.bonds = FeatureEmbedding([count + 1 for count in edge_cardinalities], hidden_channels)
        self.filters = model_filters(self.config)
        self.bases = nn.ModuleList(
            GraphBases(
                num_heads,
                hidden_channels,
                norm=bases_norm,
                activation=bases_activation,
                normalise=normalise_bases,
                dropout=propagation_dropout,
            )
            for _ in range(1 if sharing == "small" else num_layers)
        )
        self.convs = nn.ModuleList(
            GraphConv(hidden_channels, dropout=feature_dropout) for _ in range(num_layers)
        )
        self.readout = nn.Linear(hidden_channels, out_channels)
        self._draw_linear()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does."""
        reset_parts(self)
        self._draw_linear()

    def forward(self, batch: PackedGraphs) -> Tensor:
        check_packed(batch)
        layout = Layout(batch, self.readout.weight.dtype)
        responses = self._responses(layout.spectra)
        entries = [basis_entries(response, layout) for response in responses]
        nodes, bonds = self.atoms(batch), self.bonds(batch.bond_table)
        for layer, conv in enumerate(self.convs):
            if layer < len(self.filters):
                moments = cast(GraphBases, self.bases[layer]).moments(entries[layer], layout)
            if layer < len(self.bases):
                bases = self.bases[layer](entries[min(layer, len(entries) - 1)], layout, moments)
            nodes = conv(nodes, bonds, bases, layout)
        with torch.autocast(nodes.device.type, enabled=False):  # predictions keep their digits
            return cast(Tensor, self.readout(pool(nodes, layout.by_graph, self.pooling)))

    def responses(self, batch: PackedGraphs) -> list[Tensor]:
        """New eigenvalues ``[B, max_nodes, heads]`` of every filter: one, or one a layer if large.

        Those beyond a graph's size mean nothing.
        """
        check_packed(batch)
        return self._responses(Layout(batch, self.readout.weight.dtype).tokens)

    def _responses(self, tokens: Tokens | PackedTokens) -> list[Tensor]:
        filters = [cast(SpectralFilter, filt) for filt in self.filters]
        if len(filters) > 1 and isinstance(tokens, PackedTokens):
            return list(decode_together(filters, tokens).unbind(0))
        return [filt.decode(tokens) for filt in filters]

    def _draw_linear(self) -> None:
        """Draw embeddings and linear weights with ``init_std``, if there is one."""
        std = self.config["init_std"]
        if std is None:
            return
        for name, module in self.named_modules():
            if name.rpartition(".")[2] in PROJECTIONS:
                continue  # for the reason given in :class:`specformer.Specformer`
            if isinstance(module, (Linear, FeatureEmbedding)):
                module.reset_parameters(std)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std)
                nn.init.zeros_(module.bias)


def _check(config: dict[str, Any]) -> None:
    """Refuse what no other module would."""
    check_choices(
        config,
        sharing=("small", "medium", "large"),
        pooling=POOLINGS,
        filter_activation=ACTIVATIONS,
        bases_activation=ACTIVATIONS,
    )
    check_counts(config, "hidden_channels", "out_channels", "num_layers", "num_heads")
    check_flags(config, "encoding", "attention")
    check_rates(config, "transformer_dropout", "feature_dropout", "propagation_dropout")
    check_std(config)
