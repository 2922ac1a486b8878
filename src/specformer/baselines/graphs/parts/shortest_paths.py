r"""Distances within small graphs, and averages over all shortest paths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
