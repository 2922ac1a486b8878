r"""Attention among all nodes of a graph, with a bias for each distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specformer.kernels.tracing import first_order
from specformer.kernels.triton.language import (
    blocks,
    dot_precision,
    jit,
    power_of_two,
    store_tile,
    tile,
    tl,
)

#: Queries and keys of a tile.
_ROWS = 64


def distance_attention(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, distances: Tensor
) -> Tensor:
    r"""Attention with a bias for each distance, run and head.

    .. math::
        y_i = \sum_j p_{ij} v_j, \qquad p_{ij} = e^{x_{ij} - \ell_i}, \quad
        x_{ij} = q_i^\top k_j / \sqrt d + b_{\phi(i, j)}, \quad \ell_i = \log \sum_j e^{x_{ij}}

    Neither scores nor biases are ever stored for all pairs: each program takes a block of queries
    and loops over the keys. In the backward pass, with
    :math:`\partial x_{ij} = p_{ij} (g_i^\top v_j - g_i^\top y_i)`, one kernel takes blocks of keys,
    for :math:`\partial k` and :math:`\partial v`, and one takes blocks of queries, for
    :math:`\partial q` and the sums of :math:`\partial x` by distance, which each program stores
    separately. Products use TF32 if PyTorch's own may.

    Shapes: query, key, value (q, k, v) and output ``[runs, heads, n, width]``, table
    ``[runs, heads, buckets]`` (b), distances ``[n, n]`` (:math:`\phi`), indices into the table.
    """
    return _DistanceAttention.apply(query, key, value, table, distances)


class _DistanceAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, table: Tensor, distances: Tensor
    ) -> Tensor:
        query, key, value, table = (each.contiguous() for each in (query, key, value, table))
        runs, heads, rows, width = query.shape
        out, lse = torch.empty_like(query), query.new_empty(runs, heads, rows)
        ctx.grid = blocks(rows, _ROWS), runs * heads
        ctx.sizes = rows, width**-0.5, table.shape[-1]
        ctx.block = {
            "width": width,
            "ROWS": _ROWS,
            "WIDTH": power_of_two(width, least=16),  # the smallest size that products support
            "PRECISION": dot_precision("ieee"),
            "num_warps": 4,
            "num_stages": 2,
        }
        _forward[ctx.grid](query, key, value, table, distances, out, lse, *ctx.sizes, **ctx.block)
        ctx.save_for_backward(query, key, value, table, distances, out, lse)
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, table, distances, out, lse = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        mean = (gradient * out).sum(dim=-1)
        of_query, of_key, of_value = (torch.empty_like(query) for _ in range(3))
        given = (query, key, value, table, distances, gradient, mean, lse)
        _backward_keys[ctx.grid](*given, of_key, of_value, *ctx.sizes, **ctx.block)
        parts = table.new_empty(*table.shape[:2], ctx.grid[0], table.shape[-1])
        buckets = power_of_two(table.shape[-1])
        _backward_queries[ctx.grid](
            *given, of_query, parts, *ctx.sizes, BUCKETS=buckets, **ctx.block
        )
        return of_query, of_key, of_value, parts.sum(dim=-2), None


@jit
def _scores(q, k, table, distances, start, low, rows, scale, PRECISION: tl.constexpr):
    """Scores of queries from ``start`` and keys from ``low`` on, and their distances."""
    query, key = start + tl.arange(0, q.shape[0]), low + tl.arange(0, k.shape[0])
    inside = (query < rows)[:, None] & (key < rows)[None, :]
    place = distances + query[:, None].to(tl.int64) * rows + key[None, :]
    distance = tl.load(place, mask=inside, other=0).to(tl.int32)
    x = scale * tl.dot(q, tl.trans(k), input_precision=PRECISION) + tl.load(table + distance)
    return tl.where(inside, x, float("-inf")), distance


@jit
def _forward(
    query, key, value, table, distances, out, lse, rows, scale, buckets,
    width: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    start, own = tl.program_id(0) * ROWS, tl.program_id(1).to(tl.int64)
    place = own * rows * width
    q = tile(query + place, start, rows, width, width, ROWS, WIDTH)
    top = tl.full([ROWS], -1.0e30, tl.float32)  # below any score, but finite
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, WIDTH], tl.float32)
    for low in range(0, rows, ROWS):
        k = tile(key + place, low, rows, width, width, ROWS, WIDTH)
        v = tile(value + place, low, rows, width, width, ROWS, WIDTH)
        x, _ = _scores(q, k, table + own * buckets, distances, start, low, rows, scale, PRECISION)
        higher = tl.maximum(top, tl.max(x, axis=1))
        shrink = tl.exp(top - higher)
        power = tl.exp(x - higher[:, None])
        total = total * shrink + tl.sum(power, axis=1)
        summed = tl.dot(power, v, summed * shrink[:, None], input_precision=PRECISION)
        top = higher
    row = start + tl.arange(0, ROWS)
    total = tl.where(row < rows, total, 1.0)
    store_tile(out + place, summed / total[:, None], start, rows, width, width, ROWS, WIDTH)
    tl.store(lse + own * rows + row, top + tl.log(total), mask=row < rows)


@jit
def _slopes(
    q, k, v, g, table, distances, mean, lse, start, low, rows, scale, PRECISION: tl.constexpr
):
    """Attention weights of keys, gradients of their scores, and distances."""
    x, distance = _scores(q, k, table, distances, start, low, rows, scale, PRECISION)
    row = start + tl.arange(0, q.shape[0])
    level = tl.load(lse + row, mask=row < rows, other=0.0)
    share = tl.exp(x - level[:, None])
    of_share = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    average = tl.load(mean + row, mask=row < rows, other=0.0)
    return share, share * (of_share - average[:, None]), distance


@jit
def _backward_keys(
    query, key, value, table, distances, gradient, mean, lse, of_key, of_value, rows, scale,
    buckets, width: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    low, own = tl.program_id(0) * ROWS, tl.program_id(1).to(tl.int64)
    place, line = own * rows * width, own * rows
    k = tile(key + place, low, rows, width, width, ROWS, WIDTH)
    v = tile(value + place, low, rows, width, width, ROWS, WIDTH)
    of_k = tl.zeros([ROWS, WIDTH], tl.float32)
    of_v = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(0, rows, ROWS):
        q = tile(query + place, start, rows, width, width, ROWS, WIDTH)
        g = tile(gradient + place, start, rows, width, width, ROWS, WIDTH)
        share, slope, _ = _slopes(
            q, k, v, g, table + own * buckets, distances, mean + line, lse + line, start, low,
            rows, scale, PRECISION,
        )  # fmt: skip
        of_v = tl.dot(tl.trans(share), g, of_v, input_precision=PRECISION)
        of_k = tl.dot(tl.trans(slope), q, of_k, input_precision=PRECISION)
    store_tile(of_key + place, scale * of_k, low, rows, width, width, ROWS, WIDTH)
    store_tile(of_value + place, of_v, low, rows, width, width, ROWS, WIDTH)


@jit
def _backward_queries(
    query, key, value, table, distances, gradient, mean, lse, of_query, parts, rows, scale,
    buckets, width: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    BUCKETS: tl.constexpr,
):  # fmt: skip
    start, own = tl.program_id(0) * ROWS, tl.program_id(1).to(tl.int64)
    place, line = own * rows * width, own * rows
    q = tile(query + place, start, rows, width, width, ROWS, WIDTH)
    g = tile(gradient + place, start, rows, width, width, ROWS, WIDTH)
    of_q = tl.zeros([ROWS, WIDTH], tl.float32)
    bucket = tl.arange(0, BUCKETS)
    by_distance = tl.zeros([ROWS, BUCKETS], tl.float32)
    for low in range(0, rows, ROWS):
        k = tile(key + place, low, rows, width, width, ROWS, WIDTH)
        v = tile(value + place, low, rows, width, width, ROWS, WIDTH)
        _, slope, distance = _slopes(
            q, k, v, g, table + own * buckets, distances, mean + line, lse + line, start, low,
            rows, scale, PRECISION,
        )  # fmt: skip
        of_q = tl.dot(slope, k, of_q, input_precision=PRECISION)
        # One bucket at a time, and only those in this tile, which has few different distances.
        for number in range(tl.min(distance), tl.max(distance) + 1):
            sums = tl.sum(tl.where(distance == number, slope, 0.0), axis=1)
            by_distance += tl.where((bucket == number)[None, :], sums[:, None], 0.0)
    store_tile(of_query + place, scale * of_q, start, rows, width, width, ROWS, WIDTH)
    part = parts + (own * tl.num_programs(0) + tl.program_id(0)) * buckets + bucket
    tl.store(part, tl.sum(by_distance, axis=0), mask=bucket < buckets)
