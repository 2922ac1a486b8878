r"""Specformer for many small graphs with node and edge features, such as molecules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from specformer.errors import ConfigError
from specformer.kernels.segments import at_least_float32
from specformer.kernels.weighted_attention import FlatSpectra
from specformer.nn.argument_checks import check_arguments, refuse_idle, whole_numbers
from specformer.nn.conv.embedding import EdgeEmbedding, FingerprintEmbedding, NodeEmbedding
from specformer.nn.conv.graph_conv import (
    BasesNorm,
    GraphBases,
    GraphConv,
    GraphPairs,
    Normalisation,
    Pooling,
    basis_entries,
    pool,
)
from specformer.nn.conv.pair_states import PairUpdate, bond_vectors, diagonal_rows, shared_rings
from specformer.nn.filter import DecoderKind, SpectralFilter
from specformer.nn.layers.batch_norm import Activation, BatchNorm
from specformer.nn.layers.linear import has_hooks
from specformer.nn.node_model import Sharing
from specformer.nn.pretrained import constructor_arguments
from specformer.nn.spectral_model import SpectralModel
from specformer.nn.tokens import EigenvalueSet
from specformer.spectrum import Keys
from specformer.spectrum.many.packed_graphs import PackedGraphs, as_packed

if TYPE_CHECKING:
    from torch_geometric.data import Data


class GraphSpecformer(SpectralModel):
    r"""Specformer for graph classification and regression: one output row per graph.

    Nodes and edges are embedded, spectral convolutions follow, then pooling and a linear read-out.

    Args:
        node_cardinalities: number of values of each categorical node feature.
        edge_cardinalities: number of values of each categorical edge feature.
        hidden_channels: width d of all layers.
        out_channels: number of targets, classes or tasks.
        num_layers: number of convolutions.
        num_heads: number M of attention heads and bases per filter.
        sharing: ``"small"``: all layers share one filter and one network on the bases;
            ``"medium"``: one filter, but one network per layer; ``"large"``: both per layer.
        form: ``"paper"``: the paper's model; ``"pairs"``: every pair of nodes has a state, which
            starts from the bases and is updated before every convolution (needs
            ``sharing="small"``).
        max_ring: size of the largest rings that pair states know about, in atoms; 0 for no rings.
        pooling: ``"mean"``, ``"sum"`` or ``"max"`` over the nodes of a graph.
        num_blocks: depth of the filters' Transformer.
        decoder, epsilon, encoding, attention: see :class:`SpectralFilter`.
        bases_norm: ``"batch"`` for batch normalisation in the network on the bases, or None.
        bases_activation: its last activation: ``"relu"``, ``"gelu"``, ``"tanh"`` or None.
        normalise_bases: ``"softmax"`` for a softmax over the sources of each node, or None.
        transformer_dropout: dropout rate in the filters.
        feature_dropout: dropout rate in the convolutions.
        propagation_dropout: dropout rate on the weights of the bases.
        in_channels: number of numeric node features, in addition to the categorical ones.
        edge_dim: number of numeric edge features, in addition to the categorical ones.
        fingerprint: length of fingerprints (:func:`specformer.graphs.fragment_counts`), which are
            embedded and concatenated to the pooled nodes; 0 for none.
        fingerprint_dropout: dropout rate on embedded fingerprints.
        init_std: standard deviation of initial embeddings and linear weights, except those of
            attention; biases start at zero. None for PyTorch's initialisation.

    Shapes: input a PyG ``Batch`` of B graphs transformed by :class:`specformer.AddSpectrum`, or
    packed graphs; output ``[B, out_channels]``.

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
        form: Literal["paper", "pairs"] = "paper",
        max_ring: int = 0,
        pooling: Pooling = "mean",
        num_blocks: int = 1,
        decoder: DecoderKind = "joint",
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
        edge_dim: int = 0,
        fingerprint: int = 0,
        fingerprint_dropout: float = 0.0,
        init_std: float | None = None,
    ) -> None:
        super().__init__()
        node_cardinalities = whole_numbers("node_cardinalities", node_cardinalities)
        edge_cardinalities = whole_numbers("edge_cardinalities", edge_cardinalities)
        self.config = constructor_arguments(locals())
        none = dict.fromkeys(
            ("num_blocks", "max_ring", "in_channels", "edge_dim", "fingerprint"), 0
        )
        check_arguments(GraphSpecformer, self.config, **none)
        if 0 < max_ring < 3:
            raise ConfigError(f"max_ring={max_ring}: use 0, or at least 3 atoms.")
        refuse_idle(self.config)
        self.pooling, self.fingerprint = pooling, fingerprint
        #: Batches must be packed with rings of up to this many atoms; None if rings are not used.
        self.max_ring = max_ring or None
        has_states, num_features = form == "pairs", max(0, max_ring - 2)
        self.atoms = NodeEmbedding(node_cardinalities, hidden_channels, in_channels)
        self.bonds = EdgeEmbedding(edge_cardinalities, hidden_channels, edge_dim)
        self.filters = self.new_filters()
        self.bases = nn.ModuleList(
            GraphBases(
                num_heads + num_features,
                hidden_channels,
                norm=bases_norm,
                activation=bases_activation,
                normalise=None if has_states else normalise_bases,
                dropout=0.0 if has_states else propagation_dropout,
            )
            for _ in range(1 if sharing == "small" else num_layers)
        )
        self.convs = nn.ModuleList(
            GraphConv(hidden_channels, dropout=feature_dropout, norm=has_states)
            for _ in range(num_layers)
        )
        if has_states:
            self.places = nn.Linear(num_heads + 1 + num_features, hidden_channels)
            self.updates = nn.ModuleList(
                PairUpdate(hidden_channels, dropout=propagation_dropout, normalise=normalise_bases)
                for _ in range(num_layers)
            )
            self.last_norm = BatchNorm(hidden_channels)
        width = hidden_channels
        if fingerprint:
            self.fragments = FingerprintEmbedding(fingerprint, hidden_channels, fingerprint_dropout)
            width += hidden_channels
        self.readout = nn.Linear(width, out_channels)
        self.apply_init_std()

    def forward(self, batch: PackedGraphs | Data) -> Tensor:
        batch = as_packed(batch, self.config)
        pairs = GraphPairs(batch, self.readout.weight.dtype)
        entries = [basis_entries(response, pairs) for response in self.decoded(pairs.spectra)]
        nodes, bonds = self.atoms(batch), self.bonds(batch)
        if self.config["form"] == "pairs":
            nodes = self._with_states(nodes, bonds, entries[0], pairs)
        else:
            for layer, conv in enumerate(self.convs):
                if layer < len(self.bases):
                    bases = self.bases[layer](entries[min(layer, len(entries) - 1)], pairs)
                nodes = conv(nodes, bonds, bases, pairs)
        with torch.autocast(nodes.device.type, enabled=False):  # predictions in full precision
            pooled = pool(nodes, pairs.by_graph, self.pooling)
            if self.fingerprint:
                pooled = torch.cat([pooled, self.fragments(batch)], dim=1)
            return self.readout(pooled)

    def _with_states(
        self, nodes: Tensor, bonds: Tensor, entries: Tensor, pairs: GraphPairs
    ) -> Tensor:
        r"""The nodes after all layers of the form ``"pairs"``.

        The features of pairs are bases and shared rings, :math:`f_{ij} = [I \,\Vert\, S_1 \,\Vert
        \dots \Vert\, S_M \,\Vert\, \log(1 + r)]_{ij}`. Nodes start as :math:`h_i = a_i + W f_{ii} +
        b`, and states as :math:`p_{ij} = \mathrm{FFN}(f_{ij}) + e_{ij}`. At the end nodes are
        batch-normalised.
        """
        if self.max_ring:
            rings = shared_rings(pairs.batch, self.max_ring, pairs.dtype).log1p()
            entries = torch.cat([entries, rings.to(entries.dtype)], dim=1)
        nodes = nodes + at_least_float32(self.places(diagonal_rows(entries, pairs)))
        states = at_least_float32(self.bases[0](entries, pairs)) + bond_vectors(bonds, pairs)
        for layer, conv in enumerate(self.convs):
            update = cast(PairUpdate, self.updates[layer])
            states = update(states, nodes, pairs)
            nodes = conv(nodes, bonds, update.weights(states, pairs), pairs)
        return cast(Tensor, self.last_norm(nodes, pairs.nodes))

    def responses(self, batch: PackedGraphs | Data) -> list[Tensor]:
        """New eigenvalues ``[B, max_nodes, heads]`` of every filter: one, or one per layer.

        Rows beyond a graph's size are padding.
        """
        return self.decoded(GraphPairs(as_packed(batch), self.readout.weight.dtype).tokens)

    def decoded(
        self, tokens: EigenvalueSet, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> list[Tensor]:
        filters = cast("list[SpectralFilter]", list(self.filters))
        alone = len(filters) == 1 or any(has_hooks(filt) for filt in filters)
        if isinstance(tokens, FlatSpectra) and not alone:
            return list(decode_together(filters, tokens).unbind(0))
        return super().decoded(tokens, landmarks, index)


def decode_together(filters: Sequence[SpectralFilter], tokens: EigenvalueSet) -> Tensor:
    """Decode the same tokens by several filters of one shape, ``[filters, p, heads]``.

    Every call stacks their parameters along a run axis (:mod:`specformer.nn.layers.linear`). This
    copies them, but launches one chain of kernels instead of one per filter.
    """
    parameters = [dict(filt.named_parameters()) for filt in filters]
    stacked = {name: torch.stack([own[name] for own in parameters]) for name in parameters[0]}
    return functional_call(filters[0], stacked, (tokens,))
