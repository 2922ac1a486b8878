r"""The bonds of a batch: who is joined to whom, as weights over all pairs of nodes.

A list of bonds has a length that only the data know. All pairs with a weight of one or zero have a
fixed shape instead, so that a step can be captured; a molecule has few enough pairs for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from specformer.kernels.messages import filtered_sum
from specformer.kernels.norms import CountedRows
from specformer.kernels.segments import Segments, scattered_segments, widened
from specformer.kernels.tracing import first_order
from specformer.nn.conv.graph_pairs import GraphPairs
from specformer.spectrum.many.packed_graphs import PackedGraphs


@dataclass(frozen=True)
class Bonds:
    """What message passing needs of a batch, worked out once for all layers.

    Args:
        layout: where rows and pairs lie.
        weight: ``[P, 1]`` one for a bond, zero for any other pair.
        degree: ``[N, 1]`` bonds of each node.
        counted: which pairs are bonds, for normalisation.
        by_source: pairs by the node that they come from.
    """

    layout: GraphPairs
    weight: Tensor
    degree: Tensor
    counted: CountedRows
    by_source: Segments

    @classmethod
    def of(cls, batch: PackedGraphs, dtype: torch.dtype) -> Bonds:
        """The bonds of a batch, weights in the given precision."""
        layout = GraphPairs(batch, dtype)
        joined = (batch.bond > 0) & batch.pair_mask
        weight = joined.to(dtype).unsqueeze(-1)
        return cls(
            layout=layout,
            weight=weight,
            degree=layout.by_target.sum(weight),
            counted=CountedRows.of(joined, dtype),
            by_source=scattered_segments(batch.source, len(batch.graph)),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """B and max_nodes."""
        return self.layout.batch.num_graphs, self.layout.batch.max_nodes

    @property
    def lonely(self) -> Tensor:
        """``[N, 1]`` true for a node without bonds."""
        return self.degree == 0

    @property
    def token_bias(self) -> Tensor:
        """``[B, 1, 1, max_nodes]`` what keeps attention from padding: 0 or minus infinity."""
        return self.layout.tokens.weights.log()[:, None, None]

    def sum(self, messages: Tensor, gates: Tensor | None = None) -> Tensor:
        r"""What a node's neighbours send it, :math:`\sum_{j \sim i} g_{ij} \odot m_j`.

        Shapes: messages ``[N, channels]``, gates ``[P, channels]`` or ``[P, 1]``, zero but for
        bonds (None: one for each of them); output as messages.
        """
        gates = self.weight if gates is None else widened(gates)
        return filtered_sum(widened(messages), gates, self.by_source, self.layout.by_target)

    def sum_by_kind(self, messages: Tensor, gates: Tensor | None = None) -> Tensor:
        r"""The same of messages that differ by kind of bond, ``[N, kinds, channels]``."""
        layout, flat = self.layout, widened(messages).flatten(0, 1)
        gates = self.weight if gates is None else widened(gates)
        return filtered_sum(flat, gates, layout.by_message, layout.by_target)

    def of_kinds(self, kinds: Tensor) -> Tensor:
        """Every pair's own of values by kind ``[kinds, channels]``, zeros for no bond.

        They go through rows by source and kind, of which each has few pairs: one sum over all pairs
        of a kind would be a long one.
        """
        by_source = kinds.expand(len(self.degree), *kinds.shape).flatten(0, 1)
        return spread(by_source, self.layout.by_message) * self.weight

    def square(self, pairs: Tensor) -> Tensor:
        """Values of all pairs ``[P, channels]`` as ``[B, channels, max_nodes, max_nodes]``."""
        graphs, size = self.shape
        flat = pairs.new_zeros(graphs * size * size + 1, pairs.shape[1])
        flat = flat.index_copy(0, self.layout.pair_slot, pairs)
        return flat[:-1].view(graphs, size, size, -1).movedim(-1, 1)

    def pairs(self, square: Tensor) -> Tensor:
        """The way back from :meth:`square`, zeros for padding."""
        flat = nn.functional.pad(square.movedim(1, -1).flatten(0, 2), (0, 0, 0, 1))
        return flat.index_select(0, self.layout.pair_slot)

    def adjacency(self) -> Tensor:
        """``[B, max_nodes, max_nodes]`` ones and zeros."""
        return self.square(self.weight).squeeze(1)

    def dense(self, nodes: Tensor) -> Tensor:
        """Rows of nodes ``[N, channels]`` as ``[B, max_nodes, channels]``, zeros for padding."""
        graphs, size = self.shape
        flat = nodes.new_zeros(graphs * size + 1, nodes.shape[1])
        return flat.index_copy(0, self.layout.node_slot, nodes)[:-1].view(graphs, size, -1)

    def rows(self, dense: Tensor) -> Tensor:
        """The way back from :meth:`dense`, zeros for padding."""
        flat = nn.functional.pad(dense.flatten(0, 1), (0, 0, 0, 1))
        return flat.index_select(0, self.layout.node_slot)


def spread(values: Tensor, segments: Segments) -> Tensor:
    """Each row's own of the values ``[S, channels]``, zeros for a row of no segment.

    Gradients are summed segment by segment, in the same order each time.

    Example:
        >>> spread(torch.tensor([[1.0], [2.0]]), scattered_segments(torch.tensor([1, 0, 1]), 2))
        tensor([[2.],
                [1.],
                [2.]])
    """
    return cast(Tensor, _Spread.apply(values, segments))


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return segments.spread(values)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.segments.sum(gradients[0]).to(gradients[0].dtype), None


def return_probabilities(bonds: Bonds, steps: int) -> Tensor:
    r"""How likely a random walk is back after 1 to K steps, :math:`\bigl((D^{-1}A)^k\bigr)_{ii}`.

    Shapes: output ``[N, steps]``; zeros for a node without bonds.
    """
    adjacency = bonds.adjacency()
    walk = adjacency / adjacency.sum(dim=-1, keepdim=True).clamp_min(1.0)
    # Powers amount to nothing in bfloat16.
    with torch.autocast(walk.device.type, enabled=False):
        power, found = walk, [walk.diagonal(dim1=-2, dim2=-1)]
        for _ in range(steps - 1):
            power = power @ walk
            found.append(power.diagonal(dim1=-2, dim2=-1))
    return bonds.rows(torch.stack(found, dim=-1))


@dataclass(frozen=True)
class ShortestPaths:
    """All shortest paths of B graphs, by their length.

    Args:
        adjacency: ``[B, n, n]`` ones and zeros.
        distance: ``[B, n, n]`` bonds on a shortest path; ``max_distance + 1`` beyond that, and
            where there is no path.
        counts: for each length from 0 to ``max_distance``, the number ``[B, n, n]`` of shortest
            paths between two nodes that far apart, zeros for all others.

    Example:
        >>> chain = torch.tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
        >>> ShortestPaths.of(chain, max_distance=2).distance[0].tolist()
        [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """

    adjacency: Tensor
    distance: Tensor
    counts: tuple[Tensor, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, adjacency: Tensor, max_distance: int) -> ShortestPaths:
        """One matrix product a step: paths of one more bond to nodes not met before."""
        with torch.autocast(adjacency.device.type, enabled=False):
            size = adjacency.shape[-1]
            identity = torch.eye(size, dtype=adjacency.dtype, device=adjacency.device)
            counts = [identity.expand_as(adjacency)]
            unmet = 1.0 - counts[0]
            distance = (unmet * (max_distance + 1)).long()
            for length in range(1, max_distance + 1):
                counts.append((counts[-1] @ adjacency) * unmet)
                found = counts[-1] > 0
                distance = distance.masked_fill(found, length)
                unmet = unmet.masked_fill(found, 0.0)
        return cls(adjacency, distance, tuple(counts))

    def mean_along(self, hops: Tensor) -> Tensor:
        r"""The mean over shortest paths of the mean over their bonds.

        .. math::
            c_{ij} = \frac{1}{|SP_{ij}|} \sum_{p \in SP_{ij}} \frac{1}{\min(|p|, K)}
            \sum_{k=1}^{\min(|p|, K)} b^{(k)}_{p_k}

        with :math:`b^{(k)}` the value of a bond that is the k-th of a path. Sums over paths are
        taken a length at a time, from those that are one bond shorter.

        Shapes: hops ``[B, K, channels, n, n]``, zeros but for bonds; output
        ``[B, channels, n, n]``.
        """
        with torch.autocast(hops.device.type, enabled=False):
            adjacency, most = self.adjacency.unsqueeze(1), hops.shape[1]
            total = sums = torch.zeros_like(hops[:, 0])
            for length in range(1, len(self.counts)):
                sums = sums @ adjacency
                if length <= most:
                    sums = sums + self.counts[length - 1].unsqueeze(1) @ hops[:, length - 1]
                paths = self.counts[length].unsqueeze(1)
                sums = sums * (paths > 0)
                total = total + sums / (paths.clamp_min(1.0) * min(length, most))
        return total
