r"""Directional graph network: derivatives and averages along an eigenvector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.kernels.segments import at_least_float32
from specformer.nn.layers.linear import Linear
from specformer.spectrum.many.packed_graphs import PackedGraphs

_EPS = 1e-8


def direction(batch: PackedGraphs, bonds: Bonds) -> Tensor:
    r"""The gradient of the second eigenvector along bonds, normalised at every node.

    .. math::
        F_{ij} = \frac{\varphi_j - \varphi_i}{\sum_{k \sim i} |\varphi_k - \varphi_i| + \epsilon}

    Shapes: output ``[M, 1]``; zeros for unused room.
    """
    second = (batch.position.index_select(0, batch.source) == 1) & batch.pair_mask
    chosen = batch.eigenvectors.to(bonds.layout.dtype).masked_fill(~second, 0.0).unsqueeze(-1)
    vector = bonds.layout.by_target.sum(chosen)
    by_target = bonds.by_target
    change = bonds.by_source.gather(vector) - by_target.gather(vector)
    return change / (by_target.gather(by_target.sum(change.abs())) + _EPS)


class DGNConv(nn.Module):
    r"""Mean of the neighbours, average along a direction, and derivative along it.

    .. math::
        h_i' = \mathrm{post}\Bigl[h_i \,\Big\Vert\, \tfrac{1}{d_i} \sum_j m_{ij} \,\Big\Vert\,
        \sum_j |F_{ij}| m_{ij} \,\Big\Vert\, \bigl|\sum_j F_{ij} (m_{ij} - h_i)\bigr|\Bigr],
        \qquad m_{ij} = \mathrm{pre}[h_i \,\Vert\, h_j \,\Vert\, e_{ij}]

    The sums are over neighbours j. pre is linear, so it is computed for every node and every kind
    of bond and then added. The absolute values make the sign of the eigenvector irrelevant.

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, field ``[M, 1]``, output as nodes.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.target = Linear(channels, channels)
        self.source = Linear(channels, channels, bias=False)
        self.bond = Linear(channels, channels, bias=False)
        self.post = Linear(4 * channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds, field: Tensor) -> Tensor:
        sent = bonds.at_sources(self.source(nodes)) + bonds.bond_vectors(self.bond(kinds))
        messages = at_least_float32(sent)
        own = at_least_float32(self.target(nodes))
        by_target, gates = bonds.by_target, field.abs()
        joined = (~bonds.is_isolated).to(own.dtype)
        mean = own * joined + bonds.sum(messages) / bonds.degree.clamp_min(1.0)
        average = own * by_target.sum(gates) + bonds.sum(messages * gates)
        slope = (own - nodes) * by_target.sum(field) + bonds.sum(messages * field)
        return self.post(torch.cat([nodes, mean, average, slope.abs()], dim=-1))


class DGN(GraphBaseline):
    """Directional graph network along the Laplacian's second eigenvector, with residuals.

    From `"Directional Graph Networks" <https://arxiv.org/abs/2010.02863>`_. If the second
    eigenvalue is repeated, the direction depends on the basis of its eigenspace. Batches must have
    spectra of the Laplacian.
    """

    def build(self) -> None:
        self.stack(lambda: DGNConv(self.channels))

    def layer_inputs(self, batch: PackedGraphs, bonds: Bonds) -> tuple[Tensor]:
        return (direction(batch, bonds),)
