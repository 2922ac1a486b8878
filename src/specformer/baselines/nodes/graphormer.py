r"""Graphormer: a Transformer over nodes that is told degrees and distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.transformer import Attention, Transformer, working_type
from specformer.kernels import usable

_INIT_STD = 0.02
#: Pairs of nodes whose gradients are summed by bucket at a time: 0.4 GB of zeros and ones.
_PAIRS = 2**22


class _ByBucket(torch.autograd.Function):
    """``table[:, buckets]`` of some type for [heads, b] and [n, n]; its backward sums by bucket.

    Indexing's own backward adds up n² values on b addresses: it sorts them or waits in line. Here
    they are multiplied by 0 and 1, some rows at a time, so that a gradient is read once.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, buckets: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(buckets)
        ctx.count, ctx.dtype = table.size(-1), table.dtype
        return table.to(dtype).index_select(-1, buckets.flatten().int()).view(-1, *buckets.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (buckets,) = ctx.saved_tensors
        gradient = gradients[0]
        numbers = torch.arange(ctx.count, device=buckets.device)
        sums = gradient.new_zeros(len(gradient), ctx.count, dtype=ctx.dtype)
        rows = max(1, _PAIRS // len(buckets))
        for values, places in zip(gradient.split(rows, 1), buckets.split(rows), strict=True):
            chosen = (places.unsqueeze(-1) == numbers).to(gradient.dtype)  # [rows, n, b]
            sums += (values.transpose(0, 1) @ chosen).sum(0, dtype=ctx.dtype)
        return sums, None, None


@dataclass(frozen=True)
class DistanceAttention:
    r"""Attention with a number for each distance added to the scores.

    .. math::
        \mathrm{softmax}\bigl(Q_h K_h^\top / \sqrt{d_h} + b_{h, \phi(i, j)}\bigr) V_h

    A fused kernel holds no scores. Without such a kernel runs come one after the other, and again
    in the backward pass: of the [n, n] scores, those of a single run and block are held at a time,
    0.5 or 0.9 GB on Photo rather than ten runs' times as many copies as autograd keeps.

    Args:
        table: ``[heads, buckets]``, or ``[runs, heads, buckets]`` of stacked models.
        distances: ``[n, n]`` :math:`\phi`, as places in the table.

    Shapes: queries, keys, values and output ``[runs, heads, n, d]``.
    """

    table: Tensor
    distances: Tensor

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        tables = self.table.expand(len(query), -1, -1)
        if usable("distance_attention", query, self.table):
            from specformer.kernels.triton.distance_attention import distance_attention

            return distance_attention(query, key, value, tables, self.distances)
        runs = [
            # Nothing in it is random.
            checkpoint(self._one, *run, use_reentrant=False, preserve_rng_state=False)
            for run in zip(query, key, value, tables, strict=True)
        ]
        return torch.stack(runs)

    def _one(self, query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        dtype = working_type(query)
        bias = _ByBucket.apply(table, self.distances, dtype)
        q, k, v = (part.unsqueeze(0).to(dtype) for part in (query, key, value))
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=bias.unsqueeze(0))
        return mixed.squeeze(0).to(query.dtype)


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
    """

    def build(self, *, max_degree: int = 512, max_distance: int = 20, **shared: Any) -> None:
        super().build(**shared)
        self.max_degree, self.max_distance = max_degree, max_distance
        self.degree_embedding = nn.Parameter(torch.empty(max_degree + 1, self.channels[1]))
        self.distance_bias = nn.Parameter(torch.empty(self.config["heads"], max_distance + 2))
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

    def attention(self, propagation: Propagation) -> Attention:
        """Each head's number for every pair's distance, added to the scores."""
        return DistanceAttention(self.distance_bias, propagation.distances(self.max_distance))
