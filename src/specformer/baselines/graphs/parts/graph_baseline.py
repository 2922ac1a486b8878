r"""What the graph-level baselines share: embeddings, pooling, and the last layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.parts.bonds import Bonds
from specformer.errors import ConfigError
from specformer.kernels.masked_norm import CountedRows
from specformer.kernels.segments import widened
from specformer.nn.argument_checks import check_choices, check_counts, check_rates
from specformer.nn.conv.embedding import FeatureEmbedding, NodeEmbedding, checked_cardinalities
from specformer.nn.conv.graph_pairs import POOLINGS, Pooling, pool
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.pretrained import Pretrained
from specformer.spectrum.many.packed_graphs import PackedGraphs
from specformer.spectrum.many.pyg_batch import as_packed


class GraphBaseline(Pretrained, ABC):
    r"""Embedded atoms, a vector for each graph, an MLP, one output row per graph.

    A model says in :meth:`pooled` how it comes to a vector for each graph. The MLP has two hidden
    layers of half and a quarter of the width, as in `"Benchmarking Graph Neural
    Networks" <https://arxiv.org/abs/2003.00982>`_.

    Args:
        arguments: those of the model's constructor, from :func:`~specformer.nn.pretrained.given`.
        atom_channels: width of the embedded atoms; None for ``hidden_channels``.

    All models take these arguments:

    - ``node_cardinalities``, ``edge_cardinalities``: how many values each column of the atoms and
      of the bonds may take;
    - ``hidden_channels``, ``out_channels``, ``num_layers``: widths and depth;
    - ``pooling``: how the nodes of a graph become one vector;
    - ``dropout``: on what each layer adds;
    - ``in_channels``: how many numbers an atom has beside its columns.

    Shapes: a batch of B graphs; output ``[B, out_channels]``.
    """

    #: Batches must hold rings of up to so many atoms; None if the model needs no rings.
    max_ring: int | None = None

    def __init__(self, arguments: Mapping[str, Any], atom_channels: int | None = None) -> None:
        super().__init__()
        self.config = dict(arguments)
        for name in ("node_cardinalities", "edge_cardinalities"):
            self.config[name] = checked_cardinalities(name, self.config[name])
        _check(self.config)
        width = self.config["hidden_channels"]
        self.pooling: Pooling = self.config.get("pooling", "mean")
        self.dropout = nn.Dropout(self.config["dropout"])
        self.atoms = NodeEmbedding(
            self.config["node_cardinalities"], atom_channels or width, self.config["in_channels"]
        )
        half, quarter = max(width // 2, 1), max(width // 4, 1)
        self.head: nn.Module = nn.Sequential(
            nn.Linear(width, half), nn.ReLU(), nn.Linear(half, quarter), nn.ReLU()
        )
        self.readout = nn.Linear(quarter, self.config["out_channels"])

    @abstractmethod
    def pooled(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        """One vector per graph, ``[B, hidden_channels]``."""

    def forward(self, batch: PackedGraphs) -> Tensor:
        batch = as_packed(batch)
        if batch.bond_x is not None or batch.num_eigenpairs is not None:
            raise ConfigError(
                f"{type(self).__name__} takes categories of edges and complete spectra: leave out "
                "measured edge_attr, and use AddSpectrum without k."
            )
        vectors = self.pooled(batch, Bonds.of(batch, self.readout.weight.dtype))
        with torch.autocast(vectors.device.type, enabled=False):  # predictions keep their digits
            return cast(Tensor, self.readout(self.head(vectors)))


class PooledBaseline(GraphBaseline):
    """A :class:`GraphBaseline` whose layers give vectors of nodes, which are then pooled."""

    @abstractmethod
    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        """The nodes after all layers, ``[N, hidden_channels]``."""

    def updated(self, nodes: Tensor, norm: nn.Module, out: Tensor, counted: CountedRows) -> Tensor:
        r"""The nodes and what a layer adds, :math:`h + \mathrm{ReLU}(\mathrm{BN}(o))`."""
        return nodes + cast(Tensor, self.dropout(norm(widened(out), counted).relu()))

    def pooled(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        return pool(self.encode(batch, bonds), bonds.layout.by_graph, self.pooling)


class BondEmbedding(FeatureEmbedding):
    """Vectors for kinds of bonds; the row of "no bond" is not used.

    Shapes: the table of kinds ``[kinds, columns]`` as batches have it, output
    ``[kinds, channels]``.
    """

    def forward(self, features: Tensor) -> Tensor:
        return super().forward((features - 1).clamp_min(0))


def normalised(norm: BatchNorm, rows: Tensor, counted: CountedRows) -> Tensor:
    """Rows normalised over those that count, in float32 or better."""
    return cast(Tensor, norm(widened(rows), counted))


def check_max_ring(max_ring: int) -> int:
    """Refuse rings of fewer than three atoms."""
    check_counts({"max_ring": max_ring}, "max_ring", least=3)
    return max_ring


def _check(config: Mapping[str, Any]) -> None:
    every = {"pooling": "mean", "attention_dropout": 0.0, **config}
    check_choices(every, pooling=POOLINGS)
    check_counts(every, "hidden_channels", "out_channels", "num_layers")
    check_rates(every, "dropout", "attention_dropout")
