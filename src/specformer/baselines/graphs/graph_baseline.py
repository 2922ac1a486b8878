r"""What the graph-level baselines share: embeddings, the sequence of layers, pooling, the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from specformer.baselines.baseline import Baseline
from specformer.baselines.graphs.bonds import Bonds
from specformer.errors import ConfigError
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import at_least_float32
from specformer.nn.argument_checks import check_choices, check_split, whole_numbers
from specformer.nn.conv.embedding import FeatureEmbedding, NodeEmbedding
from specformer.nn.conv.graph_conv import POOLINGS, Pooling, pool
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.spectrum.many.packed_graphs import PackedGraphs, as_packed


class GraphBaseline(Baseline):
    r"""Embedded atoms, layers, a vector for each graph, an MLP, one output row per graph.

    A model is its layer: it says in ``build`` what its layers are, mostly by :meth:`stack`. Layers
    take nodes ``[N, channels]`` and kinds of bonds ``[kinds, channels]``, and give new nodes. Then

    .. math::
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}\bigl(\mathrm{BN}(\mathrm{layer}(h^{(l)}, e))\bigr)

    The MLP has two hidden layers of half and a quarter of the width, as in `"Benchmarking Graph
    Neural Networks" <https://arxiv.org/abs/2003.00982>`_.

    Args:
        node_cardinalities: how many values each column of the atoms may take.
        edge_cardinalities: the same of the bonds.
        hidden_channels, out_channels, num_layers: widths and depth.
        pooling: how the nodes of a graph become one vector.
        dropout: on what each layer adds.
        in_channels: how many numbers an atom has beside its columns.

    Shapes: a batch of B graphs; output ``[B, out_channels]``.
    """

    #: Batches must hold rings of up to so many atoms; None if the model needs no rings.
    max_ring: int | None = None
    least: ClassVar = {"in_channels": 0, "walk_channels": 0, "spectrum_channels": 0, "max_ring": 3}
    #: The setting that says how many of a node's channels do not come from its atom.
    beside: ClassVar[str | None] = None
    #: :meth:`outputs` as training calls it, once :meth:`compile_training` was called.
    _compiled: Callable[[PackedGraphs], Tensor] | None = None

    def frame(
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
        check_choices({"pooling": pooling}, pooling=POOLINGS)
        self.pooling, self.channels, self.depth = pooling, hidden_channels, num_layers
        self.dropout = nn.Dropout(dropout)
        self.atoms = NodeEmbedding(columns, self._atom_channels(), in_channels)
        half, quarter = max(hidden_channels // 2, 1), max(hidden_channels // 4, 1)
        self.head: nn.Module = nn.Sequential(
            nn.Linear(hidden_channels, half), nn.ReLU(), nn.Linear(half, quarter), nn.ReLU()
        )
        self.readout = nn.Linear(quarter, out_channels)

    def stack(
        self, layer: Callable[[], nn.Module], bonds: Literal["one", "each"] | None = "one"
    ) -> None:
        """Make as many layers as asked for, with one embedding of bonds, one each, or none."""
        embeddings = {"one": 1, "each": self.depth}.get(bonds or "", 0)
        self.bond_tables = nn.ModuleList(self.bond_embedding() for _ in range(embeddings))
        self.layers = nn.ModuleList(layer() for _ in range(self.depth))
        self.norms = nn.ModuleList(BatchNorm(self.channels) for _ in range(self.depth))

    def bond_embedding(self, channels: int | None = None) -> BondEmbedding:
        return BondEmbedding(self.edge_cardinalities, channels or self.channels)

    def pair_embedding(self) -> FeatureEmbedding:
        """Vectors for kinds of bonds, and one more for "no bond"."""
        return FeatureEmbedding([count + 1 for count in self.edge_cardinalities], self.channels)

    def forward(self, batch: PackedGraphs) -> Tensor:
        batch = as_packed(batch, self.config)
        if batch.bond_x is not None or batch.num_eigenpairs is not None:
            raise ConfigError(
                f"{type(self).__name__} takes categories of edges and complete spectra: leave out "
                "measured edge_attr, and use AddSpectrum without k."
            )
        return self._compiled(batch) if self.training and self._compiled else self.outputs(batch)

    def outputs(self, batch: PackedGraphs) -> Tensor:
        """One row per graph of a batch that was checked, ``[B, out_channels]``."""
        vectors = self.pooled(batch, Bonds.of(batch, self.readout.weight.dtype))
        with torch.autocast(vectors.device.type, enabled=False):  # predictions keep their digits
            return self.readout(self.head(vectors))

    def compile_training(self) -> None:
        """Compile what training calls, once for all sizes of batches; evaluation stays as it is.

        A layer is many small steps, each a kernel on a GPU: compiled, a step of training has about
        a quarter as many. Compiling takes a minute or two.
        """
        self._compiled = torch.compile(self.outputs, dynamic=True)

    def pooled(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        """One vector per graph, ``[B, hidden_channels]``."""
        return pool(self.encode(batch, bonds), bonds.layout.by_graph, self.pooling)

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        """The nodes after all layers, ``[N, hidden_channels]``."""
        nodes: Tensor = self.atoms(batch)
        known = self.known(batch, bonds)
        kinds = [embedding(batch.bond_table) for embedding in self.bond_tables]
        kinds = kinds * self.depth if len(kinds) == 1 else kinds or [None] * self.depth
        for of_bonds, layer, norm in zip(kinds, self.layers, self.norms, strict=True):
            out = at_least_float32(layer(nodes, of_bonds, bonds, *known))
            nodes = nodes + self.dropout(norm(out, bonds.layout.nodes).relu())
        return nodes

    def known(self, batch: PackedGraphs, bonds: Bonds) -> tuple[Any, ...]:  # noqa: ARG002
        """What layers take beside nodes, kinds of bonds and bonds."""
        return ()

    def _atom_channels(self) -> int:
        if self.beside is None:
            return self.channels
        others = self.config[self.beside]
        if not 0 < others < self.channels:
            raise ConfigError(
                f"{self.beside}={others} must lie between 0 and hidden_channels={self.channels}."
            )
        return self.channels - int(others)


class BondEmbedding(FeatureEmbedding):
    """Vectors for kinds of bonds; the row of "no bond" is not used.

    Shapes: the table of kinds ``[kinds, columns]`` as batches have it, output
    ``[kinds, channels]``.
    """

    def forward(self, features: Tensor) -> Tensor:
        return super().forward((features - 1).clamp_min(0))


class PairAttention(nn.Module):
    r"""Multi-head attention, :math:`\mathrm{softmax}_j(q_i^\top k_j / \sqrt{d_h} + b_{ij})\, v_j`.

    ``dropout`` is on the attention's shares.

    Shapes: tokens ``[B, n, channels]``; bias ``[B, heads, n, n]`` or what broadcasts to it, minus
    infinity for padding; output as tokens.
    """

    def __init__(self, channels: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_split(channels, num_heads)
        self.num_heads = num_heads
        self.dropout = dropout
        self.project = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

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


def two_maps(channels: int, hidden: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A feed-forward network with one hidden layer."""
    return nn.Sequential(nn.Linear(channels, hidden), activation(), nn.Linear(hidden, channels))


def normalised(norm: BatchNorm, rows: Tensor, counted: CountedRows) -> Tensor:
    """Rows normalised over those that count, in float32 or better."""
    return norm(at_least_float32(rows), counted)
