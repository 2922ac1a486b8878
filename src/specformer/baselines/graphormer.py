r"""Graphormer: a Transformer over nodes that is told degrees and distances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from specformer.baselines.propagation import Propagation
from specformer.baselines.transformer import Transformer

_INIT_STD = 0.02


class _ByBucket(torch.autograd.Function):
    """``table[..., buckets]`` for [..., b] and [n, n], with a sum a bucket as its backward.

    Indexing's own backward adds up n² values on b addresses: it sorts them or waits in line.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, buckets: Tensor) -> Tensor:
        ctx.save_for_backward(buckets)
        ctx.count = table.size(-1)
        picked = table.index_select(-1, buckets.flatten())
        return picked.view(*table.shape[:-1], *buckets.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (buckets,) = ctx.saved_tensors
        gradient = gradients[0].flatten(-2)
        sums = [
            gradient @ (buckets == bucket).flatten().to(gradient.dtype)
            for bucket in range(ctx.count)
        ]
        return torch.stack(sums, dim=-1), None


class Graphormer(Transformer):
    r"""Transformer with centrality and spatial encoding.

    From `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_.

    .. math::
        h_i^{(0)} = W_{\mathrm{in}} x_i + b_{\mathrm{in}} + z_{\deg(i)}, \qquad
        A_{ij} = \mathrm{softmax}_j\bigl(q_i^\top k_j / \sqrt{d_h} + b_{\phi(i, j)}\bigr)

    :math:`z` is one learned vector for each degree, :math:`b` one learned number for each head and
    distance :math:`\phi(i, j)` in edges, shared by all blocks. A distance beyond ``max_distance``
    counts as that, and no path at all has a number of its own. The paper's edge encoding and its
    virtual node are left out: these graphs have no edge features and nothing is read out of the
    whole graph. The blocks are :class:`Transformer`'s.

    Every pair of nodes has a bias, for each head: :meth:`Propagation.distances` refuses more than
    20,000 nodes.

    Args:
        num_layers: Blocks.
        heads: Heads of attention; they divide ``hidden_channels``.
        max_degree: Larger degrees count as this one.
        max_distance: Longer distances likewise.
        dropout: As in :class:`Transformer`.

    Shapes:
        - input: ``[n, in_channels]`` or ``[runs, n, in_channels]``, and the graph
        - output: ``[n, out_channels]`` or ``[runs, n, out_channels]``

    Example:
        >>> Graphormer(3, 8, 2, max_distance=5).distance_bias.shape  # 0 to 5, and unreachable
        torch.Size([4, 7])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        heads: int = 4,
        max_degree: int = 512,
        max_distance: int = 20,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            in_channels,
            hidden_channels,
            out_channels,
            num_layers=num_layers,
            heads=heads,
            dropout=dropout,
        )
        self.max_degree = max_degree
        self.max_distance = max_distance
        self.degree_embedding = nn.Parameter(torch.empty(max_degree + 1, hidden_channels))
        self.distance_bias = nn.Parameter(torch.empty(heads, max_distance + 2))
        self._reset_encodings()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_encodings()

    def _reset_encodings(self) -> None:
        nn.init.normal_(self.degree_embedding, std=_INIT_STD)
        nn.init.normal_(self.distance_bias, std=_INIT_STD)

    def tokens(self, x: Tensor, propagation: Propagation) -> Tensor:
        """Features and degree, [..., n, hidden_channels]."""
        degrees = propagation.degrees.clamp_max(self.max_degree)
        return super().tokens(x, propagation) + self.degree_embedding.index_select(-2, degrees)

    def bias(self, propagation: Propagation) -> Tensor:
        """Each head's number for every pair's distance, [..., heads, n, n]."""
        out: Tensor = _ByBucket.apply(self.distance_bias, propagation.distances(self.max_distance))
        return out
