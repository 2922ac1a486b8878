r"""Base class of graph-level baselines: embeddings, the sequence of layers, pooling, read-out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from specformer.baselines.baseline import Baseline
from specformer.baselines.graphs.bonds import Bonds
from specformer.errors import ConfigError
from specformer.nn.argument_checks import check_split, whole_numbers
from specformer.nn.conv.embedding import FeatureEmbedding, NodeEmbedding
from specformer.nn.conv.graph_conv import Pooling, pool
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear
from specformer.spectrum.many.packed_graphs import PackedGraphs, as_packed


class GraphBaseline(Baseline):
    r"""A model with one output row per graph: node embedding, layers, pooling and an MLP.

    A subclass builds its layers in ``build``, usually by :meth:`stack`. A layer takes nodes
    ``[N, channels]`` and kinds of bonds ``[kinds, channels]`` and returns new nodes:

    .. math::
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}\bigl(\mathrm{BN}(\mathrm{layer}(h^{(l)}, e))\bigr)

    The MLP has two hidden layers of half and a quarter of the width, as in `"Benchmarking Graph
    Neural Networks" <https://arxiv.org/abs/2003.00982>`_.

    Args:
        node_cardinalities: number of values of each categorical node feature.
        edge_cardinalities: number of values of each categorical edge feature.
        hidden_channels: width of the layers.
        out_channels: number of targets, classes or tasks.
        num_layers: number of layers.
        pooling: ``"mean"``, ``"sum"`` or ``"max"`` over the nodes of a graph.
        dropout: dropout rate on the update of each layer.
        in_channels: number of numeric node features, in addition to the categorical ones.

    Shapes: a batch of B graphs; output ``[B, out_channels]``.
    """

    #: Batches must be packed with rings of up to this many atoms; None if rings are not used.
    max_ring: int | None = None
    lowest: ClassVar = {"in_channels": 0, "walk_channels": 0, "spectrum_channels": 0, "max_ring": 3}
    #: The argument that says how many of a node's channels hold a positional encoding.
    encoding_setting: ClassVar[str | None] = None

    def build_shared(
        self,
        node_cardinalities: Sequence[int],
        edge_cardinalities: Sequence[int],
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 4,
        *,
        pooling: Pooling = "mean",
        dropout: float = 0.0,
        in_channels: int = 0,
    ) -> None:
        columns = whole_numbers("node_cardinalities", node_cardinalities)
        self.edge_cardinalities = whole_numbers("edge_cardinalities", edge_cardinalities)
        self.config.update(node_cardinalities=columns, edge_cardinalities=self.edge_cardinalities)
        self.pooling, self.channels, self.depth = pooling, hidden_channels, num_layers
        self.dropout = nn.Dropout(dropout)
        self.atoms = NodeEmbedding(columns, self._atom_channels(), in_channels)
        half, quarter = max(hidden_channels // 2, 1), max(hidden_channels // 4, 1)
        self.head: nn.Module = nn.Sequential(
            Linear(hidden_channels, half), nn.ReLU(), Linear(half, quarter), nn.ReLU()
        )
        self.readout = Linear(quarter, out_channels)

    def stack(
        self, layer: Callable[[], nn.Module], bonds: Literal["one", "each"] | None = "one"
    ) -> None:
        """Build all layers, with one bond embedding for all, one for each layer, or none."""
        embeddings = {"one": 1, "each": self.depth}.get(bonds or "", 0)
        self.bond_tables = nn.ModuleList(self.bond_embedding() for _ in range(embeddings))
        self.layers = nn.ModuleList(layer() for _ in range(self.depth))
        self.norms = nn.ModuleList(BatchNorm(self.channels) for _ in range(self.depth))

    def bond_embedding(self, channels: int | None = None) -> BondEmbedding:
        return BondEmbedding(self.edge_cardinalities, channels or self.channels)

    def pair_embedding(self) -> FeatureEmbedding:
        """An embedding of kinds of bonds, including "no bond"."""
        return FeatureEmbedding([count + 1 for count in self.edge_cardinalities], self.channels)

    def forward(self, batch: PackedGraphs) -> Tensor:
        batch = as_packed(batch, self.config)
        if batch.bond_x is not None or batch.num_eigenpairs is not None:
            raise ConfigError(
                f"{type(self).__name__} needs categorical edge features and complete spectra: "
                "leave out numeric edge_attr, and use AddSpectrum without k."
            )
        vectors = self.pooled(batch, Bonds.of(batch, self.readout.weight.dtype))
        with torch.autocast(vectors.device.type, enabled=False):  # predictions in full precision
            return self.readout(self.head(vectors))

    def pooled(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        """One vector per graph, ``[B, hidden_channels]``."""
        return pool(self.encode(batch, bonds), bonds.layout.by_graph, self.pooling)

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        """The nodes after all layers, ``[N, hidden_channels]``."""
        nodes: Tensor = self.atoms(batch)
        known = self.layer_inputs(batch, bonds)
        kinds = [embedding(batch.bond_table) for embedding in self.bond_tables]
        kinds = kinds * self.depth if len(kinds) == 1 else kinds or [None] * self.depth
        for of_bonds, layer, norm in zip(kinds, self.layers, self.norms, strict=True):
            out = layer(nodes, of_bonds, bonds, *known)
            nodes = nodes + self.dropout(norm(out, bonds.layout.nodes, "relu"))
        return nodes

    def layer_inputs(self, batch: PackedGraphs, bonds: Bonds) -> tuple[Any, ...]:  # noqa: ARG002
        """Further inputs of every layer, after nodes, kinds of bonds and bonds."""
        return ()

    def _atom_channels(self) -> int:
        if self.encoding_setting is None:
            return self.channels
        others = self.config[self.encoding_setting]
        if not 0 < others < self.channels:
            raise ConfigError(
                f"{self.encoding_setting}={others} must lie between 0 and "
                f"hidden_channels={self.channels}."
            )
        return self.channels - int(others)


class BondEmbedding(FeatureEmbedding):
    """An embedding of kinds of bonds; the vector of "no bond" is arbitrary.

    Shapes: a batch's table of kinds ``[kinds, columns]``, output ``[kinds, channels]``.
    """

    def forward(self, features: Tensor) -> Tensor:
        return super().forward((features - 1).clamp_min(0))


class PairAttention(nn.Module):
    r"""Multi-head attention, :math:`\mathrm{softmax}_j(q_i^\top k_j / \sqrt{d_h} + b_{ij})\, v_j`.

    ``dropout`` acts on the attention weights.

    Shapes: tokens ``[B, n, channels]``; bias ``[B, heads, n, n]`` or a shape that broadcasts to it,
    minus infinity for padding; output as tokens.
    """

    def __init__(self, channels: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.num_heads = num_heads
        self.dropout = dropout
        self.project = Linear(channels, 3 * channels)
        self.out = Linear(channels, channels)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        heads = self.project(tokens).unflatten(-1, (3, self.num_heads, -1)).movedim(-3, 0)
        query, key, value = heads.transpose(-2, -3)
        size = tokens.shape[1]
        mixed = nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=bias.to(query.dtype).expand(len(tokens), self.num_heads, size, size),
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(mixed.transpose(1, 2).flatten(-2))


def two_layer_mlp(channels: int, hidden: int) -> nn.Sequential:
    """An MLP with one hidden layer and ReLU."""
    return nn.Sequential(Linear(channels, hidden), nn.ReLU(), Linear(hidden, channels))
