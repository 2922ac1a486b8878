r"""Where random walks return to: encodings of a node's place."""

from __future__ import annotations

import torch
from torch import Tensor

from specformer.baselines.graphs.parts.bonds import Bonds


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
