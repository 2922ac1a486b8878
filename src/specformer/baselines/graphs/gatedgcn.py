r"""GatedGCN with states of bonds and optional positional encodings, for many small graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds, return_probabilities
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.kernels.segments import at_least_float32, segment_gather, segment_sum
from specformer.nn.conv.graph_conv import pool
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.layers.linear import Linear
from specformer.spectrum.many.packed_graphs import PackedGraphs

_EPS = 1e-6


class GatedGCNLayer(nn.Module):
    r"""One layer over nodes and bonds, both with residuals.

    .. math::
        \hat e_{ij} &= C e_{ij} + D h_i + E h_j, \qquad
        \eta_{ij} = \frac{\sigma(\hat e_{ij})}{\sum_{k \sim i} \sigma(\hat e_{ik}) + 10^{-6}} \\
        h_i' &= h_i + \mathrm{ReLU}\Bigl(\mathrm{BN}\bigl(A h_i + \sum_{j \sim i}
        \eta_{ij} \odot B h_j\bigr)\Bigr), \qquad
        e_{ij}' = e_{ij} + \mathrm{ReLU}(\mathrm{BN}(\hat e_{ij}))

    With positional encodings p of the nodes (``places``), A and B take :math:`[h \,\Vert\, p]`, and

    .. math::
        p_i' = p_i + \tanh\Bigl(G p_i + \sum_{j \sim i} \eta_{ij} \odot H p_j\Bigr)

    Shapes: nodes ``[N, channels]``, states of messages ``[M, channels]``, places
    ``[N, channels]`` or None; output as all three.
    """

    def __init__(self, channels: int, dropout: float = 0.0, *, places: bool = False) -> None:
        super().__init__()
        # Maps of the same input are one product: A and B, D and E, G and H.
        self.nodes = Linear(2 * channels if places else channels, 2 * channels)
        self.ends = Linear(channels, 2 * channels)
        self.places = Linear(channels, 2 * channels) if places else None
        self.bond = Linear(channels, channels)
        self.node_norm = BatchNorm(channels)
        self.bond_norm = BatchNorm(channels)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, nodes: Tensor, states: Tensor, places: Tensor | None, bonds: Bonds
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        target, source = self.ends(nodes).chunk(2, dim=-1)
        mixed = at_least_float32(
            self.bond(states) + segment_gather(target, bonds.by_target) + bonds.at_sources(source)
        )
        gates = mixed.sigmoid()
        total = bonds.sum(gates) + _EPS

        def gated(linear: nn.Module, inputs: Tensor) -> Tensor:
            own, sent = linear(inputs).chunk(2, dim=-1)
            return own + bonds.sum(bonds.at_sources(sent) * gates) / total

        placed = nodes if places is None else torch.cat([nodes, places], dim=-1)
        update = self.node_norm(gated(self.nodes, placed), bonds.layout.nodes, "relu")
        # Unused room stays zero; otherwise it could grow without bound.
        change = self.bond_norm(mixed, bonds.counted, "relu") * bonds.counted.share
        if places is not None and self.places is not None:
            places = places + gated(self.places, places).tanh()
        return nodes + self.dropout(update), states + self.dropout(change), places


class WalkEncoding(nn.Module):
    """Positional encodings of nodes from random walks, before the first and after the last layer.

    Shapes: nodes and places ``[N, channels]``.
    """

    def __init__(self, channels: int, walk_steps: int) -> None:
        super().__init__()
        self.walk_steps = walk_steps
        self.lift = Linear(walk_steps, channels)
        self.lower = Linear(channels, walk_steps)
        self.mix = Linear(channels + walk_steps, channels)

    def first(self, bonds: Bonds) -> Tensor:
        """Initial encodings, from the return probabilities of a random walk."""
        return self.lift(return_probabilities(bonds, self.walk_steps))

    def mixed(self, nodes: Tensor, places: Tensor, bonds: Bonds) -> Tensor:
        """Combine nodes and their encodings, which are centred and normalised in each graph."""
        by_graph = bonds.layout.by_graph
        lowered = at_least_float32(self.lower(places))
        centred = lowered - segment_gather(pool(lowered, by_graph, "mean"), by_graph)
        # In a graph of one node the norm is zero, where the root has no derivative.
        norm = (segment_sum(centred.square(), by_graph) + _EPS).sqrt()
        unit = centred / segment_gather(norm, by_graph).clamp_min(_EPS)
        return self.mix(torch.cat([nodes, unit], dim=-1))


class GatedGCN(GraphBaseline):
    """Gated graph convolutions, with a state for every bond.

    From `"Residual Gated Graph ConvNets" <https://arxiv.org/abs/1711.07553>`_ as in `"Benchmarking
    Graph Neural Networks" <https://arxiv.org/abs/2003.00982>`_. With ``walk_steps`` it is
    GatedGCN-LSPE, of `"Graph Neural Networks with Learnable Structural and Positional
    Representations" <https://arxiv.org/abs/2110.07875>`_ without its additional loss. Positional
    encodings then start from the return probabilities of a random walk, and are combined with the
    nodes after the last layer.

    Args:
        walk_steps: number of random walk steps; None for no positional encodings.

    For other arguments and shapes see :class:`~specformer.baselines.graphs.GraphBaseline`.
    """

    def build(self, *, walk_steps: int | None = None) -> None:
        places = walk_steps is not None
        self.bonds = self.bond_embedding()
        self.layers = nn.ModuleList(
            GatedGCNLayer(self.channels, self.dropout.p, places=places) for _ in range(self.depth)
        )
        self.places = None if walk_steps is None else WalkEncoding(self.channels, walk_steps)

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        nodes: Tensor = self.atoms(batch)
        states = bonds.bond_vectors(self.bonds(batch.bond_table))
        places = None if self.places is None else self.places.first(bonds)
        for layer in self.layers:
            nodes, states, places = layer(nodes, states, places, bonds)
        if self.places is None or places is None:
            return nodes
        return self.places.mixed(nodes, places, bonds)
