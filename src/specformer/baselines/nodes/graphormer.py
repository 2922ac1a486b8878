r"""Graphormer: a Transformer over nodes with encodings of degrees and distances."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from specformer.baselines.nodes.propagation import Propagation
from specformer.baselines.nodes.transformer import (
    Attention,
    Transformer,
    plain_attention,
    working_type,
)
from specformer.kernels import usable

_INIT_STD = 0.02
#: Pairs of nodes whose gradients are summed at a time: 0.4 GB of zeros and ones.
_PAIRS = 2**22


class _ByBucket(torch.autograd.Function):
    """``table[:, buckets]`` in some type, for a table [heads, b] and buckets [n, n].

    The backward pass of indexing would add n² values to b addresses, which is slow. This one
    multiplies blocks of rows by zeros and ones, so that every gradient is read once.
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


def biased_attention(
    query: Tensor, key: Tensor, value: Tensor, *, table: Tensor, distances: Tensor
) -> Tensor:
    r"""Attention with a bias for each distance.

    .. math::
        \mathrm{softmax}\bigl(Q_h K_h^\top / \sqrt{d_h} + b_{h, \phi(i, j)}\bigr) V_h

    A fused kernel stores no scores. Without it, runs are computed one after the other, and again in
    the backward pass, so that the [n, n] scores of only one run and block are stored at a time: 0.5
    or 0.9 GB on Photo.

    Args:
        query: ``[runs, heads, n, d]``.
        key: as the query.
        value: as the query.
        table: biases ``[heads, buckets]``, or ``[runs, heads, buckets]`` for stacked models.
        distances: ``[n, n]`` :math:`\phi`, as indices into the table.
    """
    tables = table.expand(len(query), -1, -1)
    if usable("distance_attention", query, table):
        from specformer.kernels.triton.distance_attention import distance_attention

        return distance_attention(query, key, value, tables, distances)

    def one_run(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        bias = _ByBucket.apply(table, distances, working_type(query))
        return plain_attention(query[None], key[None], value[None], bias.unsqueeze(0)).squeeze(0)

    runs = [
        checkpoint(one_run, *run, use_reentrant=False, preserve_rng_state=False)  # no dropout
        for run in zip(query, key, value, tables, strict=True)
    ]
    return torch.stack(runs)


class Graphormer(Transformer):
    r"""Transformer with centrality and spatial encoding.

    From `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_.

    .. math::
        h_i^{(0)} = W_{\mathrm{in}} x_i + b_{\mathrm{in}} + z_{\deg(i)}, \qquad
        A_{ij} = \mathrm{softmax}_j\bigl(q_i^\top k_j / \sqrt{d_h} + b_{\phi(i, j)}\bigr)

    :math:`z` is a learned vector for each degree. :math:`b` is a learned number for each head and
    distance :math:`\phi(i, j)` in edges, shared by all blocks. Distances beyond ``max_distance``
    share one number, and pairs without a path another. The paper's edge encoding and virtual node
    are left out, because there are no edge features and no output for the whole graph. The blocks
    are those of :class:`Transformer`.

    Every pair of nodes has a bias, so graphs may have at most 20,000 nodes.
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
        """Embedded features plus degree encodings, [..., n, hidden_channels]."""
        degrees = propagation.degrees.clamp_max(self.max_degree)
        return super().tokens(x, propagation) + self.degree_embedding.index_select(-2, degrees)

    def attention(self, propagation: Propagation) -> Attention:
        """Attention with a bias for the distance of every pair."""
        distances = propagation.distances(self.max_distance)
        return partial(biased_attention, table=self.distance_bias, distances=distances)
