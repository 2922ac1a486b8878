r"""Directional graph network: derivatives and averages along an eigenvector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.parts.bonds import Bonds
from specformer.baselines.graphs.parts.graph_baseline import BondEmbedding, PooledBaseline
from specformer.kernels.segments import widened
from specformer.nn.conv.graph_pairs import Pooling
from specformer.nn.layers.batch_norm import BatchNorm
from specformer.nn.pretrained import given
from specformer.spectrum.many.packed_graphs import PackedGraphs

_EPS = 1e-8


def direction(batch: PackedGraphs, bonds: Bonds) -> Tensor:
    r"""The gradient of the second eigenvector along bonds, each node's of sum one.

    .. math::
        F_{ij} = \frac{\varphi_j - \varphi_i}{\sum_{k \sim i} |\varphi_k - \varphi_i| + \epsilon}

    Shapes: output ``[P, 1]``; zeros but for bonds, and in graphs of one node.
    """
    second = (batch.position.index_select(0, batch.source) == 1) & batch.pair_mask
    chosen = batch.eigenvectors.to(bonds.weight.dtype).masked_fill(~second, 0.0).unsqueeze(-1)
    by_target = bonds.layout.by_target
    vector = by_target.sum(chosen)
    change = (vector.index_select(0, batch.source) - by_target.spread(vector)) * bonds.weight
    return change / (by_target.spread(by_target.sum(change.abs())) + _EPS)


class DGNConv(nn.Module):
    r"""The neighbours' mean, their average along a direction, and the derivative along it.

    .. math::
        h_i' = \mathrm{post}\Bigl[h_i \,\Big\Vert\, \tfrac{1}{d_i} \sum_j m_{ij} \,\Big\Vert\,
        \sum_j |F_{ij}| m_{ij} \,\Big\Vert\, \bigl|\sum_j F_{ij} (m_{ij} - h_i)\bigr|\Bigr],
        \qquad m_{ij} = \mathrm{pre}[h_i \,\Vert\, h_j \,\Vert\, e_{ij}]

    with j over neighbours. pre is linear and computed for every node and kind of bond. Absolute
    values make the sign of the eigenvector irrelevant.

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, field ``[P, 1]``, output as nodes.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.target = nn.Linear(channels, channels)
        self.source = nn.Linear(channels, channels, bias=False)
        self.bond = nn.Linear(channels, channels, bias=False)
        self.post = nn.Linear(4 * channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, field: Tensor, bonds: Bonds) -> Tensor:
        messages = widened(self.source(nodes)).unsqueeze(1) + widened(self.bond(kinds))
        own = widened(self.target(nodes))
        by_target, gates = bonds.layout.by_target, field.abs()
        joined = (~bonds.lonely).to(own.dtype)
        mean = own * joined + bonds.sum_by_kind(messages) / bonds.degree.clamp_min(1.0)
        average = own * by_target.sum(gates) + bonds.sum_by_kind(messages, gates)
        slope = (own - nodes) * by_target.sum(field) + bonds.sum_by_kind(messages, field)
        out: Tensor = self.post(torch.cat([nodes, mean, average, slope.abs()], dim=-1))
        return out


class DGN(PooledBaseline):
    r"""Directional graph network along the Laplacian's second eigenvector, with residuals.

    From `"Directional Graph Networks" <https://arxiv.org/abs/2010.02863>`_. In an eigenspace of
    more than one dimension the direction depends on its basis; batches must hold spectra of the
    Laplacian.

    .. math::
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}(\mathrm{BN}(\mathrm{DGNConv}(h^{(l)}, e, F)))

    Arguments and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.

    Example:
        >>> DGN([28], [4], 16, 1).convs[0].post
        Linear(in_features=64, out_features=16, bias=True)
    """

    def __init__(
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
        super().__init__(given(locals()))
        self.bonds = BondEmbedding(edge_cardinalities, hidden_channels)
        self.convs = nn.ModuleList(DGNConv(hidden_channels) for _ in range(num_layers))
        self.norms = nn.ModuleList(BatchNorm(hidden_channels) for _ in range(num_layers))

    def encode(self, batch: PackedGraphs, bonds: Bonds) -> Tensor:
        nodes: Tensor = self.atoms(batch)
        kinds, field = self.bonds(batch.bond_table), direction(batch, bonds)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            out = conv(nodes, kinds, field, bonds)
            nodes = self.updated(nodes, norm, out, bonds.layout.nodes)
        return nodes
