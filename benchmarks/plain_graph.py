r"""GraphSpecformer as in the authors' loop: the plain version that ours is compared with.

Spectra are padded to rectangles. Every pair of nodes of a graph is an edge with its own features.
Messages are computed for each pair, and summed with ``index_add``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks.plain_filter import PlainFilter, load, require
from specformer.nn import GraphSpecformer
from specformer.nn.layers.batch_norm import activation_module
from specformer.spectrum import PackedGraphs


@dataclass(frozen=True)
class PlainBatch:
    """B complete graphs, padded.

    Args:
        nodes: ``[N, columns]`` integer features.
        bonds: ``[P, columns]`` integer features of every pair, zeros for no bond.
        source: ``[P]`` node that sends the message.
        target: ``[P]`` node that receives it.
        graph: ``[N]`` graph of each node.
        eigenvalues: ``[B, n]``, padded.
        vectors: ``[B, n, n]``, padded.
        padding: ``[B, n]`` true where there is no eigenvalue.
        pairs: ``[B, n, n]`` true where there is a pair.
    """

    nodes: Tensor
    bonds: Tensor
    source: Tensor
    target: Tensor
    graph: Tensor
    eigenvalues: Tensor
    vectors: Tensor
    padding: Tensor
    pairs: Tensor

    @classmethod
    def of(cls, batch: PackedGraphs) -> PlainBatch:
        """From a batch without padding."""
        places = torch.arange(batch.max_nodes, device=batch.sizes.device)
        real = places < batch.sizes.unsqueeze(1)
        pairs = real.unsqueeze(1) & real.unsqueeze(2)
        values = batch.eigenvalues.new_zeros(real.shape)
        values[real] = batch.eigenvalues
        vectors = batch.eigenvectors.new_zeros(pairs.shape)
        vectors[pairs] = batch.eigenvectors
        return cls(
            nodes=batch.nodes,
            bonds=batch.bond_table[batch.bond],
            source=batch.source,
            target=batch.target,
            graph=batch.graph,
            eigenvalues=values,
            vectors=vectors,
            padding=~real,
            pairs=pairs,
        )


class PlainBases(nn.Module):
    """The entry-wise network over ``[P, heads + 1]`` entries of the bases."""

    def __init__(self, num_heads: int, channels: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        normed = config["bases_norm"] == "batch"
        self.first = nn.Linear(num_heads + 1, channels)
        self.first_norm = nn.BatchNorm1d(channels) if normed else nn.Identity()
        self.second = nn.Linear(channels, channels)
        self.second_norm = nn.BatchNorm1d(channels) if normed else nn.Identity()
        self.activation = activation_module(config["bases_activation"])
        self.dropout = nn.Dropout(config["propagation_dropout"])
        self.shares = config["normalise_bases"] == "softmax"

    def forward(self, entries: Tensor, batch: PlainBatch) -> Tensor:
        hidden = nn.functional.gelu(self.first_norm(self.first(entries)))
        out: Tensor = self.dropout(self.activation(self.second_norm(self.second(hidden))))
        if not self.shares:
            return out
        powers = (out - out.max()).exp()
        totals = powers.new_zeros(len(batch.nodes), out.shape[1])
        totals = totals.index_add(0, batch.target, powers)
        return powers / totals[batch.target]


class PlainGraphConv(nn.Module):
    """One message per pair, summed at its target, then the feed-forward network; both residual."""

    def __init__(self, channels: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.message = nn.Linear(channels, channels)
        self.first = nn.Linear(channels, channels)
        self.first_norm = nn.BatchNorm1d(channels)
        self.second = nn.Linear(channels, channels)
        self.second_norm = nn.BatchNorm1d(channels)
        self.dropout = nn.Dropout(config["feature_dropout"])

    def forward(self, nodes: Tensor, bonds: Tensor, bases: Tensor, batch: PlainBatch) -> Tensor:
        messages = nn.functional.gelu(self.message(nodes[batch.source] + bonds)) * bases
        summed = torch.zeros_like(nodes).index_add(0, batch.target, messages)
        nodes = nodes + self.dropout(summed)
        hidden = self.first_norm(self.first(nodes)).relu()
        update = self.second_norm(self.second(hidden)).relu()
        return nodes + cast(Tensor, self.dropout(update))


class PlainGraphSpecformer(nn.Module):
    r"""The plain version of a :class:`specformer.GraphSpecformer`, with the same parameters.

    Args:
        config: configuration with one Transformer block, the joint decoder and mean pooling.

    Shapes: a batch of B graphs; output ``[B, out_channels]``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        require(
            config,
            num_blocks=1,
            encoding=True,
            attention=True,
            decoder="joint",
            pooling="mean",
        )
        hidden, heads = config["hidden_channels"], config["num_heads"]
        layers, sharing = config["num_layers"], config["sharing"]
        self.atoms = PlainEmbedding(config["node_cardinalities"], hidden)
        self.bonds = PlainEmbedding([count + 1 for count in config["edge_cardinalities"]], hidden)
        self.filters = nn.ModuleList(
            PlainFilter(hidden, heads, config["epsilon"], config["transformer_dropout"])
            for _ in range(layers if sharing == "large" else 1)
        )
        self.bases = nn.ModuleList(
            PlainBases(heads, hidden, config) for _ in range(1 if sharing == "small" else layers)
        )
        self.convs = nn.ModuleList(PlainGraphConv(hidden, config) for _ in range(layers))
        self.readout = nn.Linear(hidden, config["out_channels"])

    @classmethod
    def of(cls, model: GraphSpecformer) -> PlainGraphSpecformer:
        """The plain version of a model, with its parameters and in its precision."""
        plain = cls(model.config).to(next(model.parameters()).dtype)
        load(plain, model.state_dict())
        return plain

    def forward(self, batch: PlainBatch) -> Tensor:
        nodes, bonds = self.atoms(batch.nodes), self.bonds(batch.bonds)
        entries = [self._entries(filt, batch) for filt in self.filters]
        for layer, conv in enumerate(self.convs):
            if layer < len(self.bases):
                bases = self.bases[layer](entries[min(layer, len(entries) - 1)], batch)
            nodes = conv(nodes, bonds, bases, batch)
        sums = nodes.new_zeros(len(batch.eigenvalues), nodes.shape[1])
        sums = sums.index_add(0, batch.graph, nodes)
        return cast(Tensor, self.readout(sums / (~batch.padding).sum(dim=1, keepdim=True)))

    def _entries(self, filt: nn.Module, batch: PlainBatch) -> Tensor:
        """``[P, heads + 1]``: the identity and one basis per head, each built separately."""
        response = filt(batch.eigenvalues, batch.padding)
        size = batch.eigenvalues.shape[1]
        identity = torch.eye(size, dtype=response.dtype, device=response.device)
        built = [identity.expand(len(response), -1, -1)]
        for head in range(response.shape[-1]):
            gains = response[:, None, :, head]
            built.append((batch.vectors * gains) @ batch.vectors.mT)
        return torch.stack(built, dim=-1)[batch.pairs]


class PlainEmbedding(nn.Module):
    """The sum of one vector per column, in a Python loop over the columns."""

    def __init__(self, cardinalities: list[int], channels: int) -> None:
        super().__init__()
        self.cardinalities = cardinalities
        self.weight = nn.Parameter(torch.zeros(sum(cardinalities), channels))

    def forward(self, features: Tensor) -> Tensor:
        tables = self.weight.split(self.cardinalities)
        columns = features.long().unbind(-1)
        parts = [
            nn.functional.embedding(column, table)
            for column, table in zip(columns, tables, strict=True)
        ]
        return torch.stack(parts).sum(dim=0)
