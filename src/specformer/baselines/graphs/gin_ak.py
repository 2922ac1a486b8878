r"""GIN-AK+: a GIN on the surroundings of every node."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.baselines.graphs.bonds import Bonds, ShortestPaths, spread
from specformer.baselines.graphs.gin import GINUpdate
from specformer.baselines.graphs.graph_baseline import GraphBaseline
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import segment_sum, widened
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class Surroundings:
    """Which nodes j lie within some bonds of a node i, its surroundings.

    Args:
        square: ``[B, 1, max_nodes, max_nodes]`` one where j is within i's, else zero.
        distance: ``[P, hops + 1]`` the same of pairs, one at their distance.
        counted: which pairs those are.
        size: ``[N, 1]`` nodes of each node's surroundings, at least one.
    """

    square: Tensor
    distance: Tensor
    counted: CountedRows
    size: Tensor

    @classmethod
    def of(cls, bonds: Bonds, hops: int) -> Surroundings:
        """All nodes within ``hops`` bonds, and the node itself."""
        near = ShortestPaths.of(bonds.adjacency(), hops).distance
        dtype = bonds.weight.dtype
        steps = torch.arange(hops + 1, device=near.device)
        distance = bonds.pairs((near.unsqueeze(1) == steps[:, None, None]).to(dtype))
        joined = distance.sum(dim=-1)
        return cls(
            square=(near <= hops).to(dtype).unsqueeze(1),
            distance=distance,
            counted=CountedRows.of(joined > 0, dtype),
            size=bonds.layout.by_target.sum(joined.unsqueeze(-1)).clamp_min(1.0),
        )


class GINAKLayer(nn.Module):
    r"""One layer of GIN on all surroundings, then three readings of them.

    .. math::
        z_{j|i} &= \mathrm{MLP}\bigl((1 + \epsilon) h_j + \sum_{k \sim j,\, k \in N(i)}
        \mathrm{ReLU}(h_k + e_{jk})\bigr) \\
        h_i' &= W \bigl[z_{i|i} \,\Vert\, \mathrm{mean}_{j \in N(i)}\, \sigma(a_{d(i,j)}) \odot
        z_{j|i} \,\Vert\, \mathrm{mean}_{j:\, i \in N(j)}\, \sigma(b_{d(i,j)}) \odot z_{i|j}\bigr]
        + c

    the node in its own surroundings, the surroundings as a whole, and the node in those of others;
    gates depend on the distance. The sum over k is a product of matrices over all pairs (i, j).

    Shapes: nodes ``[N, channels]``, kinds ``[kinds, channels]``, output as nodes.
    """

    def __init__(self, channels: int, hops: int) -> None:
        super().__init__()
        self.update = GINUpdate(channels)
        self.within = nn.Linear(hops + 1, channels, bias=False)
        self.among = nn.Linear(hops + 1, channels, bias=False)
        self.fuse = nn.Linear(3 * channels, channels)

    def forward(self, nodes: Tensor, kinds: Tensor, bonds: Bonds, around: Surroundings) -> Tensor:
        states = self.states(nodes, kinds, around, bonds)
        layout = bonds.layout
        readings = (
            segment_sum(states * layout.identity.unsqueeze(-1), layout.by_target),
            segment_sum(states * self.within(around.distance).sigmoid(), layout.by_target)
            / around.size,
            segment_sum(states * self.among(around.distance).sigmoid(), bonds.by_source)
            / around.size,
        )
        out: Tensor = self.fuse(torch.cat(readings, dim=-1))
        return out

    def states(self, nodes: Tensor, kinds: Tensor, around: Surroundings, bonds: Bonds) -> Tensor:
        """Node j in the surroundings of i, pair by pair ``[P, channels]``; zeros for all others."""
        messages = (nodes.unsqueeze(1) + kinds).relu().flatten(0, 1)
        sent = bonds.square(spread(messages, bonds.layout.by_message) * bonds.weight)
        summed = bonds.pairs(around.square @ widened(sent).mT)
        own = (1.0 + self.update.epsilon) * spread(nodes, bonds.by_source)
        return widened(self.update(own + summed, around.counted)) * around.counted.share


class GINAK(GraphBaseline):
    r"""GIN as kernel over surroundings, with contexts and distances (GIN-AK+).

    From `"From Stars to Subgraphs: Uplifting Any GNN with Local Structure
    Awareness" <https://arxiv.org/abs/2110.03753>`_, all surroundings in every step.

    .. math::
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}(\mathrm{BN}(\mathrm{GINAKLayer}(h^{(l)}, e^{(l)})))

    Args:
        hops: bonds to the rim of the surroundings.

    All others, and shapes: see :class:`~specformer.baselines.graphs.GraphBaseline`.

    Example:
        >>> GINAK([28], [4], 16, 1, hops=3).layers[0].within.weight.shape
        torch.Size([16, 4])
    """

    def build(self, *, hops: int = 3) -> None:
        self.hops = hops
        self.stack(lambda: GINAKLayer(self.channels, hops), bonds="each")

    def known(self, batch: PackedGraphs, bonds: Bonds) -> tuple[Surroundings]:  # noqa: ARG002
        return (Surroundings.of(bonds, self.hops),)
