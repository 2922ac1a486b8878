r"""Batches cut from the arrays of a whole data set."""

from __future__ import annotations

import torch
from torch import Tensor

from specformer import kernels


def cut(
    index: Tensor,
    sizes: Tensor,
    starts: tuple[Tensor, Tensor],
    of_rows: tuple[Tensor, Tensor],
    of_pairs: tuple[Tensor, Tensor],
    num_nodes: int,
    num_pairs: int,
) -> dict[str, Tensor]:
    """The arrays of these graphs one after another, then zeros, by name.

    Shapes: index ``[B]``; of all G graphs, sizes ``[G]``, starts of rows and of pairs ``[G + 1]``;
    of_rows ``[ΣN, columns]`` integers and ``[ΣN]``, of_pairs ``[ΣN²]`` integers and ``[ΣN²]``.
    """
    if kernels.runs_on(index.device, "batch_cut"):  # one kernel instead of some thirty
        from specformer.kernels.triton.cutting import batch_cut

        return batch_cut(index, sizes, starts, of_rows, of_pairs, num_nodes, num_pairs)
    (nodes, values), (bond, vectors) = of_rows, of_pairs
    chosen = sizes.index_select(0, index)
    node, is_node = stretches(starts[0].index_select(0, index), chosen, num_nodes)
    pair, is_pair = stretches(starts[1].index_select(0, index), chosen * chosen, num_pairs)
    return {
        "sizes": chosen,
        "nodes": nodes.index_select(0, node).long() * is_node.unsqueeze(1),
        "eigenvalues": values.index_select(0, node) * is_node,
        "bond": bond.index_select(0, pair).long() * is_pair,
        "eigenvectors": vectors.index_select(0, pair) * is_pair,
    }


def stretches(start: Tensor, length: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The stretches of these starts and lengths one after another, and what is one of them.

    Shapes: start and length ``[B]``, output ``[count]``; what remains points to 0.

    Example:
        >>> place, real = stretches(torch.tensor([10, 30]), torch.tensor([2, 1]), 4)
        >>> place.tolist(), real.tolist()
        ([10, 11, 30, 0], [True, True, True, False])
    """
    end = length.cumsum(0)
    number = torch.arange(count, device=start.device)
    of = torch.searchsorted(end, number, right=True)
    real = of < len(start)
    shift = (start - end + length).index_select(0, of.clamp(max=len(start) - 1))
    return (number + shift) * real, real
