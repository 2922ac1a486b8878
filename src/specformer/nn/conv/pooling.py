r"""One vector per graph from the vectors of its nodes."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from specformer.errors import ConfigError
from specformer.kernels.segments import Segments, segment_sum

Pooling = Literal["mean", "sum", "max"]
POOLINGS = ("mean", "sum", "max")


def pool(nodes: Tensor, by_graph: Segments, how: Pooling) -> Tensor:
    """The mean, sum or largest of each graph's rows, ``[N, channels]`` to ``[B, channels]``.

    A graph without nodes gets zeros.

    Example:
        >>> import torch
        >>> from specformer.kernels.segments import contiguous_segments
        >>> by_graph = contiguous_segments(torch.tensor([2, 1]), num_rows=3)
        >>> pool(torch.tensor([[1.0], [3.0], [5.0]]), by_graph, "mean").tolist()
        [[2.0], [5.0]]
    """
    if how == "max":
        return by_graph.max(nodes)
    if how == "sum":
        return segment_sum(nodes, by_graph)
    if how == "mean":
        sizes = by_graph.offsets.diff().clamp_min(1).unsqueeze(-1)
        return segment_sum(nodes, by_graph) / sizes
    raise ConfigError(f"pooling={how!r}: choose {' or '.join(POOLINGS)}.")
